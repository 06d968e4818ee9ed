"""Small changes of the core's source (scripts/mutants.py): where they can be made, and how functions that are there already get them."""

import ast
import copy
import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, NamedTuple

CODE = Path(__file__).parents[1] / "src" / "continua"
CORE = ["ode/*.py", "ode/*/*.py", "filters/*.py", "train/checkpoint.py", "files.py"]
SWAPS: dict[type, type] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Is: ast.IsNot,
    ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
    ast.Pow: ast.Mult, ast.FloorDiv: ast.Div, ast.Mod: ast.FloorDiv, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip


class Mutant(NamedTuple):
    """A change: in which file, the n-th of its kind on such a text there; and where that is today."""

    file: str
    kind: str
    was: str
    nth: int
    line: int
    place: int

    @property
    def key(self) -> tuple[str, str, str, int]:
        return self[:4]


def places(tree: ast.Module) -> Iterator[tuple[ast.AST, str]]:
    """Every node that can be changed, with the kind of change; not what only people read: messages, annotations, docstrings."""

    def walk(node: ast.AST) -> Iterator[tuple[ast.AST, str]]:
        if isinstance(node, ast.Raise | ast.JoinedStr | ast.Import | ast.ImportFrom) or "TYPE_CHECKING" in ast.dump(node)[:60]:
            return
        yield from ((node, kind) for kind in kinds(node))
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "decorator_list", "type_params", "bases"):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from walk(child)

    yield from walk(tree)


def kinds(node: ast.AST) -> list[str]:
    match node:
        case ast.Compare(ops=[only]) | ast.BinOp(op=only) | ast.BoolOp(op=only) | ast.AugAssign(op=only) if type(only) in SWAPS:
            return ["swap"]
        case ast.UnaryOp(op=ast.Not() | ast.USub()):
            return ["drop sign"]
        case ast.Constant(value=bool()) | ast.Constant(value=int()) | ast.Constant(value=float()):
            return ["constant"]
        case ast.If() | ast.IfExp() | ast.While():
            return ["negate"]
        case ast.Return(value=ast.AST() as value) if not isinstance(value, ast.Constant):
            return ["return nothing"]
        case ast.Expr(value=ast.Call()):
            return ["leave out"]
    return []


def mutated(node: Any, kind: str) -> None:
    """Change a node of a copied tree in place."""
    if kind == "swap" and isinstance(node, ast.Compare):
        node.ops = [SWAPS[type(node.ops[0])]()]
    elif kind == "swap":
        node.op = SWAPS[type(node.op)]()
    elif kind == "drop sign":
        become(node, node.operand)
    elif kind == "constant":
        old = node.value
        node.value = (not old) if isinstance(old, bool) else old + 1 if isinstance(old, int) else old * 2 if old else 1.0
    elif kind == "negate":
        node.test = ast.UnaryOp(ast.Not(), node.test)
    elif kind == "return nothing":
        node.value = ast.Constant(None)
    else:
        become(node, ast.Pass())


def become(node: ast.AST, other: ast.AST) -> None:
    """Turn a node into another one, where it stands."""
    node.__class__ = type(other)  # pyright: ignore[reportAttributeAccessIssue]
    for name in list(node._fields):
        setattr(node, name, getattr(other, name))


def core_files() -> list[Path]:
    return sorted({path for pattern in CORE for path in CODE.glob(pattern)})


def core_digest() -> str:
    """Equal as long as no line of the core changes."""
    return hashlib.sha256(b"".join(path.read_bytes() for path in core_files())).hexdigest()


def all_mutants() -> list[Mutant]:
    """Every place of the core."""
    found = []
    for path in core_files():
        file, seen = str(path.relative_to(CODE)), Counter[tuple[str, str]]()
        for index, (node, kind) in enumerate(places(ast.parse(path.read_text()))):
            was = shown(node)
            found.append(Mutant(file, kind, was, seen[kind, was], int(getattr(node, "lineno", 0)), index))
            seen[kind, was] += 1
    return found


def changed(mutant: Mutant) -> tuple[ast.Module, str]:
    """The changed file, and what stands there now."""
    tree = copy.deepcopy(ast.parse((CODE / mutant.file).read_text()))
    node, kind = list(places(tree))[mutant.place]
    mutated(node, kind)
    return ast.fix_missing_locations(tree), shown(node)


def shown(node: ast.AST) -> str:
    return ast.unparse(node).splitlines()[0][:120]


def exchanged(path: Path, tree: ast.Module, functions: list[FunctionType]) -> int:
    """Exchange the code of the functions of a file that a change concerns; how many there were."""
    old, new = (list(_codes(compile(text, str(path), "exec"))) for text in (ast.parse(path.read_text()), tree))
    places: dict[str, list[int]] = defaultdict(list)
    for index, code in enumerate(old):
        places[code.co_qualname].append(index)
    count = 0
    for function in functions:
        same = places[function.__code__.co_qualname]
        lines = [index for index in same if old[index].co_firstlineno == function.__code__.co_firstlineno]
        which = same if len(same) == 1 else lines
        if len(which) == 1 and old[which[0]] != new[which[0]] and new[which[0]].co_freevars == function.__code__.co_freevars:
            function.__code__ = new[which[0]]
            count += 1
    return count


def _codes(code: CodeType) -> Iterator[CodeType]:
    """The code of every function of a module, in the order in which it stands there."""
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield inner
            yield from _codes(inner)
