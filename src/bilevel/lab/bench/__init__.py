"""Methods against the clock on the field's problems: `bilevel bench`."""
