"""A PTX function as C++: its scopes, operands and statements."""
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal as OneOf

from ptx_module import Kernel, Module
from ptx_source import (CPP_TYPE, NAME, SIZE, identifier, parse_declaration, parse_literal, register_type, round_up,
                        split_operands)

SPECIAL_REGISTERS = {
    **{f"%{ptx}.{axis}": f"T->{cpp}.{axis}" for ptx, cpp in
       {"tid": "tid", "ctaid": "bid", "ntid": "bdim", "nctaid": "gdim"}.items() for axis in "xyz"},
    "%laneid": "T->lane", "%warpid": "T->warp_id", "%nwarpid": "64u", "%smid": "(T->bid.x % 132)", "%nsmid": "132u", "%gridid": "0ull",
    "%clock": "(u32)csim_clock()", "%clock_hi": "(u32)(csim_clock() >> 32)", "%clock64": "csim_clock()",
    "%globaltimer": "csim_clock()", "%globaltimer_lo": "(u32)csim_clock()", "%globaltimer_hi": "(u32)(csim_clock() >> 32)",
    "%lanemask_eq": "(1u << T->lane)", "%lanemask_lt": "((1u << T->lane) - 1)", "%lanemask_le": "((2u << T->lane) - 1)",
    "%lanemask_gt": "(~((2u << T->lane) - 1))", "%lanemask_ge": "(~((1u << T->lane) - 1))",
    "%dynamic_smem_size": "T->dynamic_shared", "%total_smem_size": "T->dynamic_shared", "WARP_SZ": "32u",
    "%cluster_ctarank": "0u", "%cluster_nctarank": "1u", "%is_explicit_cluster": "false",
}  # fmt: skip


class Untranslated(Exception):
    """An instruction, or a form of it, that is left to fail by name when it is executed."""


@dataclass(frozen=True)
class Symbol:
    kind: OneOf["register", "local", "parameter", "label"]
    cpp: str
    type: str = ""  # C++ type of a register


@dataclass(frozen=True)
class Instruction:
    name: str
    modifiers: list[str]
    operands: list[str]
    text: str  # of the operands

    @property
    def type(self) -> str:
        return self.modifiers[-1] if self.modifiers else ""

    @property
    def cpp_type(self) -> str:
        if self.type not in CPP_TYPE:
            raise Untranslated
        return CPP_TYPE[self.type]

    def has(self, modifier: str) -> bool:
        return modifier in self.modifiers

    def one_of(self, *modifiers: str) -> str | None:
        return next((m for m in self.modifiers if m in modifiers), None)

    @property
    def space(self) -> str:
        spaces = (m.split("::")[0] for m in self.modifiers)
        return next((s for s in spaces if s in ("global", "shared", "local", "param", "const", "generic")), "generic")


class FunctionBody:
    def __init__(self, module: Module, is_entry: bool) -> None:
        self.module = module
        self.is_entry = is_entry
        self.scopes: list[dict[str, Symbol]] = [{}]
        self.parameters: dict[str, int] = {}  # of a kernel: offsets
        self.branch_tables: dict[str, list[str]] = {}
        self.passed_labels: set[str] = set()  # a branch to one is a loop's
        self.lines: list[str] = []
        self.registers: list[tuple[int, str, list[str]]] = []  # where they are declared, type, names
        self.source_lines: dict[int, str] = {}  # #line directives, by what they precede

    def emit(self, line: str) -> None:
        self.lines.append(line)

    def find(self, name: str) -> Symbol | None:
        return next((scope[name] for scope in reversed(self.scopes) if name in scope), None)

    def label(self, name: str) -> str:
        symbol = self.find(name + ":")
        return symbol.cpp if symbol else identifier(name)

    def value(self, text: str, type: str) -> str:
        """An operand as a C++ expression of the type."""
        text = text.strip()
        if text.startswith("!"):
            return f"!({self.value(text[1:], type)})"
        if text in SPECIAL_REGISTERS:
            return SPECIAL_REGISTERS[text] if type == "bool" else f"as<{type}>({SPECIAL_REGISTERS[text]})"
        if symbol := self.find(text):
            if symbol.kind == "register":
                return symbol.cpp if type == symbol.type else f"as<{type}>({symbol.cpp})"
            return f"(u64){symbol.cpp}" if type in ("u64", "s64") else f"as<{type}>((u64){symbol.cpp})"
        if text in self.parameters:
            return f"((u64)P + {self.parameters[text]})"
        if literal := parse_literal(text):
            if literal.kind == "decimal":
                return f"({type}){literal.text}" if type in ("f32", "f64") else f"as<{type}>((f32){literal.text})"
            if literal.kind == "f32" and type == "f64":
                return f"(f64)as<f32>({literal.text})"
            if type == "bool" or (literal.kind == "integer" and type not in ("f16", "bf16")):
                return f"({type})({literal.text})"
            return f"as<{type}>({literal.text})"
        if found := re.fullmatch(rf"({NAME})\s*([-+])\s*(\d+)", text):
            return f"({self.value(found[1], type)} {found[2]} {found[3]})"
        if found := re.fullmatch(r"generic\((.*)\)", text):
            return self.value(found[1], type)
        if address := self.module.address(text):
            return f"({type}){address}"
        raise Untranslated(f"operand {text}")

    def address(self, text: str) -> str:
        """What is between brackets, within its memory space."""
        base, offset = _base_and_offset(text)
        symbol = self.find(base)
        narrow = symbol is not None and symbol.kind == "register" and symbol.type == "u32"
        value = f"(u64){symbol.cpp}" if symbol and narrow else self.value(base, "u64")
        return f"({value} + ({offset}))" if offset else value

    def memory(self, i: Instruction, operand: str, bytes: int) -> str:
        """Where the bytes of a memory operand are."""
        address = self.address(operand)
        if i.space == "shared":
            return f"((u64)T->shared + {address})"
        return address if i.space == "local" else f"global({address}, {bytes}, T)"

    def parameter(self, text: str) -> str:
        """Where a parameter of this function, or one for a call, is."""
        base, offset = _base_and_offset(text)
        symbol = self.find(base)
        if symbol and symbol.kind == "parameter":
            return f"((u64){symbol.cpp} + {offset})"
        if base in self.parameters:
            return f"((u64)P + {self.parameters[base] + offset})"
        if symbol and symbol.kind == "register":
            return f"({self.value(base, 'u64')} + {offset})"
        raise Untranslated(f"parameter {text}")

    def put(self, operand: str, expression: str) -> None:
        """Writes a register; "_" is none."""
        operand = operand.strip()
        if operand == "_":
            self.emit(f"(void)({expression});")
            return
        symbol = self.find(operand)
        if not symbol or symbol.kind != "register":
            raise Untranslated(f"destination {operand}")
        self.emit(f"{symbol.cpp} = ({expression});" if symbol.type == "bool" else f"put({symbol.cpp}, {expression});")

    def text(self) -> str:
        """The statements; registers that nothing uses aren't declared."""
        used = set(re.findall(r"[A-Za-z_]\w*", "\n".join(self.lines)))
        declared: dict[int, list[str]] = {}
        for at, type, names in self.registers:
            if names := [n for n in names if n in used]:
                declared.setdefault(at, []).append(f"{type} {', '.join(names)};")
        out = ["u64 CF = 0;"] if "CF" in used else []
        numbered = False
        for at, line in enumerate([*self.lines, ""]):
            if directive := self.source_lines.get(at):
                out += [directive, ""]
                numbered = True
            for text in [*declared.get(at, []), line]:
                if numbered:  # one physical line, so that the number stays
                    out[-1] += " " + text
                else:
                    out.append(text)
        return "\n".join(out)


Translate = Callable[[FunctionBody, Instruction], None]  # emits an instruction's C++


def _base_and_offset(text: str) -> tuple[str, int]:
    inside = text.strip()[1:-1].strip()
    found = re.fullmatch(r"(.+?)\s*\+\s*(-?\d+)", inside) or re.fullmatch(r"(.+?)\s*(-\d+)", inside)
    return (found[1].strip(), int(found[2])) if found else (inside, 0)


def _declare(body: FunctionBody, statement: str) -> None:
    """.reg, .local, .param and .shared within a function."""
    if found := re.match(r"\.reg\s+(?:\.v\d\s+)?\.(\w+)\s+(.*)$", statement, re.S):
        type = register_type(found[1])
        names = []
        for item in split_operands(found[2]):
            range_ = re.fullmatch(r"([%\w$]+)<(\d+)>", item)
            names += [f"{range_[1]}{i}" for i in range(int(range_[2]))] if range_ else [item]
        for name in names:
            body.scopes[-1][name] = Symbol("register", "v_" + identifier(name), type)
        body.registers.append((len(body.lines), type, ["v_" + identifier(n) for n in names]))
        return
    if ".shared" in statement.split(None, 2)[:2]:
        body.module.add_shared(statement)
        return
    d = parse_declaration(statement)
    cpp = "v_" + identifier(d.name)
    if statement.startswith(".local"):
        body.scopes[-1][d.name] = Symbol("local", cpp)
        body.emit(f"alignas({max(d.align, 8)}) char {cpp}[{d.bytes}];")
    elif statement.startswith(".param"):
        body.scopes[-1][d.name] = Symbol("parameter", cpp)
        body.emit(f"alignas(16) char {cpp}[{round_up(d.bytes, 16)}];")
    else:
        raise Untranslated(statement.split()[0])


def _take_parameters(header: str, body: FunctionBody) -> tuple[str, Kernel | None]:
    """The function's name; for a kernel, its description."""
    found = re.search(r"\.(?:entry|func)\s*(\(.*?\))?\s*([\w$]+)\s*(?:\((.*?)\))?", header, re.S)
    if not found:
        raise ValueError(f"not a function: {header}")
    result, name, parameters = found[1], found[2], [parse_declaration(p) for p in split_operands(found[3] or "")]
    if not body.is_entry:
        if result:
            body.scopes[0][parse_declaration(result[1:-1]).name] = Symbol("parameter", "result")
        for i, p in enumerate(parameters):
            body.scopes[0][p.name] = Symbol("parameter", f"arguments[{i}]")
        return name, None
    end = 0
    for p in parameters:
        body.parameters[p.name] = round_up(end, p.align)
        end = body.parameters[p.name] + p.bytes
    threads = 1024
    if limit := re.search(r"\.(?:maxntid|reqntid)\s+([\d,\s]+)", header):
        threads = 1
        for extent in limit[1].split(","):
            threads *= int(extent) if extent.strip() else 1
    return name, Kernel(name, list(body.parameters.values()), [p.bytes for p in parameters], end, threads)


def _labels_by_scope(tokens: list[str]) -> list[list[str]]:
    """In the order in which scopes open: labels of repeated inline assembly stay apart."""
    scopes: list[list[str]] = [[]]
    open_scopes = [0]
    for token in tokens:
        if token == "{":
            open_scopes.append(len(scopes))
            scopes.append([])
        elif token == "}":
            open_scopes.pop()
        elif token.endswith(":"):
            scopes[open_scopes[-1]].append(token[:-1])
    return scopes


def translate_function(module: Module, header: str, tokens: list[str], translate: Translate) -> None:
    """tokens: what is between the braces."""
    body = FunctionBody(module, ".entry" in header)
    name, kernel = _take_parameters(header, body)
    labels = _labels_by_scope(tokens)
    body.scopes[0].update({name + ":": Symbol("label", identifier(name)) for name in labels[0]})
    for label, statement in zip(tokens, tokens[1:]):
        if label.endswith(":") and statement.startswith(".branchtargets"):
            body.branch_tables[label[:-1]] = split_operands(statement.removeprefix(".branchtargets"))
    opened = 0
    for token in tokens:
        if token == "{":
            opened += 1
            body.scopes.append({name + ":": Symbol("label", f"{identifier(name)}_s{opened}") for name in labels[opened]})
            body.emit("{")
        elif token == "}":
            body.scopes.pop()
            body.emit("}")
        elif token.endswith(":"):
            if token[:-1] not in body.branch_tables:
                body.passed_labels.add(token[:-1])
                body.emit(f"{body.label(token[:-1])}: ;")
        elif re.match(r"\.loc\b", token):
            _, file, line, *_ = token.split()
            if file in module.files:
                body.source_lines[len(body.lines)] = f'#line {line} "{module.files[file]}"'
        elif token.startswith((".branchtargets", ".pragma", ".callprototype")) or ".callprototype" in token:
            continue
        elif token.startswith("."):
            _declare(body, token)
        else:
            _translate_instruction(body, token, translate)
    if kernel:
        module.kernels.append(kernel)
        signature = f"static void F_{identifier(name)}(const void* P, Thread* T)"
    else:
        signature = f"static void F_{identifier(name)}(char* result, char** arguments, Thread* T)"
        module.prototypes.append(signature + ";")
    module.bodies.append(f"{signature} {{\n{body.text()}\n}}\n")


def _translate_instruction(body: FunctionBody, token: str, translate: Translate) -> None:
    found = re.match(r"^(@!?[%\w$]+\s+)?([a-z][\w.:]*)\s*(.*)$", token, re.S)
    if not found:
        raise ValueError(f"not a statement: {token}")
    name, *modifiers = found[2].split(".")
    before = len(body.lines)
    try:
        if found[1]:
            body.emit(f"if ({body.value(found[1].strip()[1:], 'bool')}) {{")
        body.emit(f'TALLY("{found[2]}");')
        translate(body, Instruction(name, modifiers, split_operands(found[3]), found[3].strip()))
    except (Untranslated, KeyError, IndexError):
        del body.lines[before + (2 if found[1] else 1):]
        body.emit(f'unsupported("{found[2]}");')
    if found[1]:
        body.emit("}")
