"""PTX text: its statements, declarations, operands and literals."""
import re
from collections.abc import Iterator
from dataclasses import dataclass

# The C++ type that a value of a PTX type is handled as, and the one that a register of it holds the bits in.
CPP_TYPE = {
    "b8": "u8", "u8": "u8", "s8": "s8", "b16": "u16", "u16": "u16", "s16": "s16", "b32": "u32", "u32": "u32", "s32": "s32",
    "b64": "u64", "u64": "u64", "s64": "s64", "b128": "u128", "f16": "f16", "bf16": "bf16", "f32": "f32", "f64": "f64",
    "f16x2": "u32", "bf16x2": "u32", "e4m3x2": "u16", "e5m2x2": "u16", "pred": "bool",
}  # fmt: skip
SIZE = {
    "u8": 1, "s8": 1, "u16": 2, "s16": 2, "f16": 2, "bf16": 2, "u32": 4, "s32": 4, "f32": 4, "u64": 8, "s64": 8, "f64": 8,
    "u128": 16,
}  # fmt: skip
UNSIGNED = {1: "u8", 2: "u16", 4: "u32", 8: "u64", 16: "u128"}

NAME = r"[A-Za-z_$%][\w$]*"


def register_type(ptx_type: str) -> str:
    cpp = CPP_TYPE[ptx_type]
    return "bool" if cpp == "bool" else UNSIGNED[SIZE[cpp]]


def round_up(n: int, unit: int) -> int:
    return (n + unit - 1) // unit * unit


def identifier(name: str) -> str:
    """A PTX name as one of C++."""
    return re.sub(r"[^A-Za-z0-9_]", lambda m: {"$": "S_", "%": "r_"}.get(m[0], "_"), name)


def without_comments(text: str) -> str:
    return re.sub(r"//[^\n]*", "", re.sub(r"/\*.*?\*/", "", text, flags=re.S))


def keep_entry(text: str, name: str) -> str:
    """The module with no other kernel than the one named."""
    kept: list[str] = []
    done = at = 0
    while (at := text.find(".entry", at)) >= 0:
        found = re.compile(r"\.entry\s+([\w$]+)").match(text, at)
        begin, depth, end = text.rfind("\n", 0, at) + 1, 0, at
        for brace in re.compile("[{}]").finditer(text, at):
            depth += 1 if brace[0] == "{" else -1
            end = brace.end()
            if depth == 0:
                break
        if found and found[1] != name:
            kept.append(text[done:begin])
            done = end
        at = end
    return "".join(kept) + text[done:]


_BEFORE_BODY = re.compile(r"^\.(visible|weak|entry|func|section|maxntid|reqntid|minnctapersm|noreturn)")


def statements(text: str) -> Iterator[str]:
    """'{', '}', 'label:', '.loc ...' and statements without their semicolon."""
    buffer = ""
    quoted = False
    depth = 0  # of braces that belong to an operand or an initialiser
    for c in text:
        if quoted or depth:
            buffer += c
            if quoted:
                quoted = c != '"'
            else:
                depth += {"{": 1, "}": -1}.get(c, 0)
            continue
        word = buffer.strip()
        if c == '"':
            quoted = True
            buffer += c
        elif c == ";":
            if word:
                yield word
            buffer = ""
        elif c == "{" and word and not word.endswith(")") and not _BEFORE_BODY.match(word):
            depth = 1
            buffer += c
        elif c in "{}":
            if word:
                yield word
            yield c
            buffer = ""
        elif c == ":" and re.fullmatch(NAME, word):
            yield word + ":"
            buffer = ""
        elif c == "\n" and re.match(r"\.(version|target|address_size|file|loc)\b", word):
            if word.startswith(".loc"):
                yield word
            buffer = ""
        else:
            buffer += c


@dataclass(frozen=True)
class Declaration:
    """.global .align 8 .b8 name[16] = {...}"""

    type: str
    align: int
    name: str
    count: int | None  # None: unsized
    initialiser: str | None

    @property
    def bytes(self) -> int:
        return SIZE[CPP_TYPE[self.type]] * (self.count or 1)


def parse_declaration(text: str) -> Declaration:
    text, _, initialiser = text.partition("=")
    align = re.search(r"\.align\s+(\d+)", text)
    text = re.sub(r"\.align\s+\d+", "", text)
    found = re.search(r"\.(b8|u8|s8|b16|u16|s16|b32|u32|s32|b64|u64|s64|b128|f16|bf16|f32|f64|pred)\b", text)
    named = re.search(rf"({NAME})\s*((?:\[\s*\d*\s*\])*)\s*$", text.strip())
    if not found or not named:
        raise ValueError(f"not a declaration: {text}")
    count: int | None = 1
    for dimension in re.findall(r"\[\s*(\d*)\s*\]", named[2]):
        count = None if dimension == "" or count is None else count * int(dimension)
    if vector := re.search(r"\.v([24])\b", text):
        count = count and count * int(vector[1])
    natural = SIZE.get(CPP_TYPE[found[1]], 1)
    return Declaration(found[1], int(align[1]) if align else natural, named[1], count, initialiser.strip() or None)


def split_operands(text: str) -> list[str]:
    operands, depth, current = [], 0, ""
    for c in text:
        depth += (c in "{[(") - (c in "}])")
        if c == "," and depth == 0:
            operands.append(current.strip())
            current = ""
        else:
            current += c
    if current.strip():
        operands.append(current.strip())
    return operands


@dataclass(frozen=True)
class Literal:
    kind: str  # f32 or f64 (their bits), integer, decimal
    text: str  # in C++


def parse_literal(text: str) -> Literal | None:
    if re.fullmatch(r"0[fF][0-9a-fA-F]{8}", text):
        return Literal("f32", f"0x{text[2:]}u")
    if re.fullmatch(r"0[dD][0-9a-fA-F]{16}", text):
        return Literal("f64", f"0x{text[2:]}ull")
    if re.fullmatch(r"-?(0[xX][0-9a-fA-F]+|\d+)U?", text):
        value = int(text.rstrip("U"), 0)
        if value >= 0:
            return Literal("integer", f"{value & 0xFFFFFFFFFFFFFFFF}ull")
        return Literal("integer", f"(u64)({value}ll)" if value > -(1 << 63) else "(1ull << 63)")
    if re.fullmatch(r"-?\d*\.\d+([eE][-+]?\d+)?", text):
        return Literal("decimal", text)
    return None
