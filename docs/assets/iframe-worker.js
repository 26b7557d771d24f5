/* The search runs in a worker, which browsers refuse to pages that are opened from disk. There a
   hidden frame does its work. The theme would fetch such a script from a network; this one is ours. */
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      frame.title = "search";
      document.body.append(frame);
      this.inside = frame.contentWindow;
      this.inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      this.ready = new Promise((loaded) => {
        const script = this.inside.document.createElement("script");
        script.src = url;
        script.onload = loaded;
        this.inside.document.body.append(script);
      });
    }
    postMessage(data) {
      // Messages wait until the worker's script listens, and keep their order.
      this.ready = this.ready.then(() =>
        this.inside.dispatchEvent(new this.inside.MessageEvent("message", { data })));
    }
  };
}
