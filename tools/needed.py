"""What later cells need of cells that are left out: the statements that bind what they read.

A chapter's guard cells check what its prose says. A notebook made for running leaves them out, but some also define
what a later cell uses. Those statements are kept, and the others of the cell, assertions among them, are not.
"""

import ast
import re

FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
COMPREHENSIONS = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


def parsed(source):
    """Return a cell's statements; magics, shell commands and files that a cell writes count as nothing."""
    if source.startswith("%%"):
        return []
    return ast.parse(re.sub(r"(?m)^([ \t]*)[%!].*$", r"\1pass", source)).body


def binds(statement):
    """Return the names that a statement binds in its cell, not those inside its functions and comprehensions."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {statement.name}
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return {(alias.asname or alias.name).partition(".")[0] for alias in statement.names}
    if isinstance(statement, ast.Name):
        return set() if isinstance(statement.ctx, ast.Load) else {statement.id}
    if isinstance(statement, FUNCTIONS | COMPREHENSIONS):
        return set()
    return set().union(*map(binds, ast.iter_child_nodes(statement)))


def surely(statement):
    """Return the names that a statement binds whatever happens; a loop is taken to run at least once."""
    if isinstance(statement, ast.With | ast.For):
        around = statement.items if isinstance(statement, ast.With) else [statement.target]
        return set().union(*map(binds, around), *map(surely, statement.body))
    sure = ast.Assign | ast.AnnAssign | ast.Import | ast.ImportFrom | ast.FunctionDef | ast.ClassDef
    return binds(statement) if isinstance(statement, sure) else set()


def reads(code):
    """Return the names that a statement, an expression or a list of statements reads and has not bound itself."""
    if isinstance(code, list):
        if not all(isinstance(part, ast.stmt) for part in code):
            return every(code)
        live = set()
        for statement in reversed(code):
            live = live - surely(statement) | reads(statement)
        return live
    if isinstance(code, FUNCTIONS):
        given = {argument.arg for argument in ast.walk(code.args) if isinstance(argument, ast.arg)}
        body = code.body if isinstance(code.body, list) else [code.body]
        inside = set().union(*map(reads, body)) - given - set().union(*map(binds, body))
        return inside | every(code.args) | every(getattr(code, "decorator_list", []))
    if isinstance(code, COMPREHENSIONS):
        return every(code) - set().union(*(binds(part.target) for part in code.generators))
    if isinstance(code, ast.ClassDef):
        return every(code) - set().union(*map(binds, code.body))
    if isinstance(code, ast.For):
        return reads(code.iter) | (reads(code.body) - binds(code.target)) | reads(code.orelse)
    if isinstance(code, ast.With):
        return every(code.items) | (reads(code.body) - set().union(*map(binds, code.items)))
    if isinstance(code, ast.Name):
        return {code.id} - binds(code)
    return every(code) | (binds(code.target) if isinstance(code, ast.AugAssign) else set())


def every(code):
    """Return the names that the parts of a node, or the nodes of a list, read."""
    parts = code if isinstance(code, list) else [value for _, value in ast.iter_fields(code)]
    return set().union(*(reads(part) for part in parts if isinstance(part, ast.AST | list)))


def functions(node):
    """Return the outermost functions in a statement."""
    if isinstance(node, FUNCTIONS):
        return [node]
    return [found for part in ast.iter_child_nodes(node) for found in functions(part)]


def frees(statement):
    """Say whether a statement lets go of what names hold: memory that a later cell counts is free again."""
    nothing = isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Constant)
    return isinstance(statement, ast.Delete) or (nothing and statement.value.value is None)


def checks_only(statement):
    """Say whether a statement does nothing but assert, perhaps in a loop over cases."""
    if isinstance(statement, ast.For | ast.If | ast.With):
        return all(map(checks_only, [*statement.body, *getattr(statement, "orelse", [])]))
    return isinstance(statement, ast.Assert)


def text_of(statement, source):
    """Return a statement's text, with its decorators."""
    first = min([statement.lineno, *(part.lineno for part in getattr(statement, "decorator_list", []))])
    return "\n".join(source.splitlines()[first - 1 : statement.end_lineno])


def needed(cells):
    """Return for each cell that is left out the source of what must be kept of it; '' where nothing is.

    cells: (source, whether it is left out) in their order. A statement is kept if a later cell, or a kept statement
    behind it, reads a name that it binds before that is bound anew; if only it binds what a function reads; and where
    it lets go of what an earlier cell made, of that alone.
    """
    code = [(parsed(source), source, out) for source, out in cells]
    seen = [statement for body, _, out in code if not out for statement in body]
    inside = [function for statement in seen for function in functions(statement)]
    called = set().union(*map(reads, inside)) - set().union(*map(binds, seen))
    alive = [set()]  # before each cell, what those before it have made and not deleted
    for body, _, out in code:
        alive.append(set(alive[-1]))
        for statement in [] if out else body:
            gone = isinstance(statement, ast.Delete)
            alive[-1] = alive[-1] - binds(statement) if gone else alive[-1] | binds(statement)
    live, kept = set(), []
    for at in range(len(code) - 1, -1, -1):
        body, source, out = code[at]
        before, parts = alive[at], []
        for statement in reversed(body):
            wanted = binds(statement) & (live | called) or (frees(statement) and binds(statement) & before)
            if out and (not wanted or checks_only(statement)):
                continue
            live = live - surely(statement) | reads(statement)
            deleted = isinstance(statement, ast.Delete) and out
            names = ", ".join(sorted(binds(statement) & before))
            parts.insert(0, f"del {names}" if deleted else text_of(statement, source))
        kept.insert(0, "\n".join(parts) if out else "")
    return kept
