"""Functions of array code as one text: every call is replaced by the body of what is called.

numba can do this as well (`inline="always"`), but it copies each body several times on the way and
hands whole tuples of arrays around, which is a good part of the time that it takes to compile a
loop. Within a statement, what is called comes first, in order. What does not fit stays a call: a
function that returns before its end, or a call that may not be made, as in `a if b else f(c)`.
"""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
from collections import Counter
from collections.abc import Callable
from typing import Any

Function = Callable[..., Any]

_STATEMENTS = ast.Assign | ast.AugAssign | ast.Expr | ast.For | ast.If | ast.Return | ast.Pass
_ODD = ast.Lambda | ast.comprehension | ast.NamedExpr | ast.Starred | ast.keyword


@functools.cache
def _definition(function: Function) -> ast.FunctionDef | None:
    """Its text, if it has a form that can be pasted."""
    try:
        found = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    except (OSError, TypeError, SyntaxError):
        return None
    if not isinstance(found, ast.FunctionDef):
        return None
    inside = [node for statement in found.body for node in ast.walk(statement)]
    fits = all(isinstance(n, _STATEMENTS) for n in inside if isinstance(n, ast.stmt))
    odd = any(isinstance(n, _ODD) or (isinstance(n, ast.For) and n.orelse) for n in inside)
    early = any(isinstance(n, ast.Return) and n is not found.body[-1] for n in inside)
    return found if fits and not odd and not early else None


class Paster:
    """Joins functions into one.

    Args:
        find: (function, name) -> what a global name of a function stands for.
        is_code: whether a value is a function of array code.
        called: what a function becomes that stays a call.
        kind: the class of a named tuple that is made once, in the first function, by
            `oracle = kind(first, second)`, of two tuples. Each field that is used becomes a
            variable, and the tuple is made only if it is used as a whole.
        split: how many fields the first of them has.
    """

    def __init__(
        self,
        find: Callable[[Function, str], Any],
        is_code: Callable[[Any], bool],
        called: Callable[[Function], Any],
        kind: Any,
        split: int,
    ) -> None:
        self.find, self.is_code, self.called = find, is_code, called
        self.kind, self.split = kind, split
        self.whole, self.used = "", dict[str, None]()  # the tuple's name, the fields asked for
        self._scope: dict[str, Any] = {"__name__": __name__}  # numba asks for a module
        self._count = 0

    def joined(self, function: Function, name: str, file: str) -> Any:
        """The function with all that it calls, under this name, as if it stood in this file."""
        definition = _definition(function)
        assert definition is not None
        given: list[ast.expr] = [ast.Name(a.arg) for a in definition.args.args]
        body, value = _Frame(self, function, definition, given).paste()
        lines = ast.unparse(ast.Module([*body, ast.Return(value)], [])).splitlines()
        arguments = ", ".join(a.arg for a in definition.args.args)
        text = "\n    ".join([f"def {name}({arguments}):", *self._with_fields(lines)])
        exec(compile(text, file, "exec"), self._scope)
        return self._scope[name]

    def _with_fields(self, lines: list[str]) -> list[str]:
        """With the fields that were used in place of the tuple, which is made if it was used."""
        start = f"{self.whole} = "
        at = next((i for i, line in enumerate(lines) if line.startswith(start)), None)
        if at is None:
            return lines
        first, second = lines[at].removeprefix(start).strip("()").split(", ")
        fields = self.kind._fields
        parts = [f"{first}[{i}]" for i in range(self.split)]
        parts += [f"{second}[{i}]" for i in range(len(fields) - self.split)]
        each = dict(zip(fields, parts, strict=True))
        made = [f"{self.whole}_{field} = {each[field]}" for field in self.used]
        rest = lines[at + 1 :]
        names = {n.id for n in ast.walk(ast.parse("\n".join(rest))) if isinstance(n, ast.Name)}
        if self.whole in names:
            made.append(f"{start}{self.bind('kind', self.kind)}({', '.join(parts)})")
        return [*lines[:at], *made, *rest]

    def fresh(self, name: str) -> str:
        self._count += 1
        return f"{name}_{self._count}"

    def bind(self, name: str, value: Any) -> str:
        """A global name for a value."""
        if self._scope.setdefault(name, value) is not value:
            same = (n for n, other in self._scope.items() if other is value)
            name = next(same, None) or self.fresh(name)
        self._scope[name] = value
        return name


def _set(target: ast.expr, value: ast.expr) -> ast.stmt:
    return ast.Assign([target], value, lineno=0)


class _Frame:
    """One function in one place."""

    def __init__(
        self, paster: Paster, function: Function, definition: ast.FunctionDef, given: list[ast.expr]
    ) -> None:
        self._paster, self._function, self._definition = paster, function, definition
        names = [node for node in ast.walk(definition) if isinstance(node, ast.Name)]
        stored = Counter(node.id for node in names if isinstance(node.ctx, ast.Store))
        self._names: dict[str, ast.expr] = {name: ast.Name(paster.fresh(name)) for name in stored}
        self._once = {name for name, count in stored.items() if count == 1}
        self._own = {entry.id for entry in self._names.values() if isinstance(entry, ast.Name)}
        self._depth = 0
        self._out: list[ast.stmt] = []
        for entry, value in zip(definition.args.args, given, strict=True):
            # An argument that has a name needs no second one, unless the function gives it another.
            if entry.arg not in stored and isinstance(value, ast.Name | ast.Constant):
                self._names[entry.arg] = value
            else:
                self._names[entry.arg] = ast.Name(paster.fresh(entry.arg))
                self._out.append(_set(self._names[entry.arg], value))

    def paste(self) -> tuple[list[ast.stmt], ast.expr]:
        """The statements, and the value."""
        value: ast.expr = ast.Constant(None)
        for statement in self._definition.body:
            if isinstance(statement, ast.Return):
                value = self._expression(statement.value or value)
            else:
                self._statement(statement)
        return self._out, value

    def _block(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        before, self._out, self._depth = self._out, [], self._depth + 1
        for statement in statements:
            self._statement(statement)
        made, self._out, self._depth = self._out, before, self._depth - 1
        return made or [ast.Pass()]

    def _statement(self, node: ast.stmt) -> None:
        if isinstance(node, ast.Expr):
            value = self._expression(node.value)
            if isinstance(value, ast.Call):
                self._out.append(ast.Expr(value))
        elif isinstance(node, ast.Assign):
            value = self._expression(node.value)
            for target in node.targets:
                self._assign(target, value, node.value)
        elif isinstance(node, ast.AugAssign):
            value = self._expression(node.value)
            self._out.append(ast.AugAssign(self._expression(node.target), node.op, value))
        elif isinstance(node, ast.For):
            over, target = self._expression(node.iter), self._expression(node.target)
            self._out.append(ast.For(target, over, self._block(node.body), [], lineno=0))
        elif isinstance(node, ast.If):
            test = self._expression(node.test)
            match test:  # known now, where None was given for an argument
                case ast.Compare(ast.Constant(None), [ast.IsNot()], [ast.Constant(None)]):
                    for statement in node.orelse:
                        self._statement(statement)
                    return
            orelse = self._block(node.orelse) if node.orelse else []
            self._out.append(ast.If(test, self._block(node.body), orelse))

    def _assign(self, target: ast.expr, value: ast.expr, said: ast.expr) -> None:
        """Of the function's own text: the target, and what is said to be its value."""
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            new, old = (
                {n.id for n in ast.walk(t) if isinstance(n, ast.Name)} for t in (target, said)
            )
            # One after the other, if none of them is needed after it was set.
            if not isinstance(said, ast.Tuple) or not new & old:
                each = said.elts if isinstance(said, ast.Tuple) else [said] * len(value.elts)
                for parts in zip(target.elts, value.elts, each, strict=True):
                    self._assign(*parts)
                return
        # What has a name needs no second one, if neither can be set again while this one is used.
        match target, value:
            case ast.Name(one), ast.Name(two) if one in self._once and two not in self._own:
                if self._depth == 0:
                    self._names[one] = value
                    return
        to = self._expression(target)
        if ast.unparse(to) != ast.unparse(value):
            self._out.append(_set(to, value))

    def _expression(self, node: Any, sure: bool = True) -> Any:
        """In the names of the whole; calls that are surely made go before the statement."""
        paster = self._paster
        if isinstance(node, ast.Name):
            return self._names.get(node.id) or self._global(node)
        if isinstance(node, ast.Attribute):
            value = self._expression(node.value, sure)
            if isinstance(value, ast.Name) and value.id == paster.whole:
                paster.used[node.attr] = None
                return ast.Name(f"{value.id}_{node.attr}")
            return ast.Attribute(value, node.attr)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            return self._call(node, node.func.id, sure)
        maybe = isinstance(node, ast.IfExp | ast.BoolOp)
        made = type(node)()
        for name, value in ast.iter_fields(node):
            certain = sure and (not maybe or name == "test")
            if isinstance(value, list):
                value = [self._part(entry, certain) for entry in value]
            setattr(made, name, self._part(value, certain))
        return made

    def _part(self, node: Any, sure: bool) -> Any:
        return self._expression(node, sure) if isinstance(node, ast.expr) else node

    def _global(self, node: ast.Name) -> ast.Name:
        value = self._paster.find(self._function, node.id)
        if value is self._paster:  # a name of Python's own
            return node
        if self._paster.is_code(value):
            value = self._paster.called(value)
        return ast.Name(self._paster.bind(node.id, value))

    def _call(self, node: ast.Call, name: str, sure: bool) -> ast.expr:
        paster = self._paster
        given = [self._expression(argument, sure) for argument in node.args]
        value: Any = paster if name in self._names else paster.find(self._function, name)
        if value is paster.kind and not paster.whole:
            paster.whole = paster.fresh("oracle")
            self._names["oracle"] = ast.Name(paster.whole)
            return ast.Tuple(given)
        definition = _definition(value) if sure and paster.is_code(value) else None
        if definition is None:
            return ast.Call(self._expression(node.func), given, [])
        body, found = _Frame(paster, value, definition, given).paste()
        self._out += body
        return found
