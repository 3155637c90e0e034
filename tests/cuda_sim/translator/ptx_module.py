"""A PTX module's variables and functions."""
import re
from dataclasses import dataclass, field

from ptx_source import CPP_TYPE, NAME, SIZE, UNSIGNED, identifier, parse_declaration, parse_literal, round_up


@dataclass(frozen=True)
class Variable:
    name: str
    offset: int
    bytes: int


@dataclass(frozen=True)
class Kernel:
    name: str
    offsets: list[int]  # of its parameters
    sizes: list[int]
    parameter_bytes: int
    max_threads: int


@dataclass
class Module:
    globals: dict[str, Variable] = field(default_factory=dict)
    globals_size: int = 0
    initialisers: list[tuple[int, str, str]] = field(default_factory=list)  # offset, PTX type, text
    shared: dict[str, Variable] = field(default_factory=dict)
    shared_size: int = 0
    dynamic_shared: set[str] = field(default_factory=set)
    functions: set[str] = field(default_factory=set)
    files: dict[str, str] = field(default_factory=dict)  # of .loc
    kernels: list[Kernel] = field(default_factory=list)
    prototypes: list[str] = field(default_factory=list)
    bodies: list[str] = field(default_factory=list)

    def add_global(self, text: str) -> None:
        d = parse_declaration(text)
        offset = round_up(self.globals_size, max(d.align, 16))
        self.globals[d.name] = Variable(d.name, offset, d.bytes)
        self.globals_size = offset + d.bytes
        if d.initialiser:
            self.initialisers.append((offset, d.type, d.initialiser))

    def add_shared(self, text: str) -> None:
        d = parse_declaration(text)
        if d.count is None or ".extern" in text:
            self.dynamic_shared.add(d.name)
            return
        offset = round_up(self.shared_size, max(d.align, 16))
        self.shared[d.name] = Variable(d.name, offset, d.bytes)
        self.shared_size = offset + d.bytes

    def add_variable(self, text: str) -> None:
        """A statement outside of functions."""
        external = ".extern" in text
        text = re.sub(r"^(\.(visible|extern|weak|common)\s+)+", "", text.strip())
        if re.match(r"\.(global|const)\b", text):
            self.add_global(text)
        elif re.match(r"\.shared\b", text):
            self.add_shared(".extern " + text if external else text)

    @property
    def static_shared(self) -> int:
        return round_up(self.shared_size, 128)

    def address(self, name: str) -> str | None:
        """In C++, of a variable (shared ones: within shared memory) or a function."""
        if name in self.globals:
            return f"(u64)(T->globals + {self.globals[name].offset})"
        if name in self.shared:
            return f"(u64){self.shared[name].offset}"
        if name in self.dynamic_shared:
            return "(u64)DYNAMIC_SHARED"
        if name in self.functions:
            return f"(u64)(Function)&F_{identifier(name)}"
        return None

    def initialisation(self) -> list[str]:
        """C++ statements that fill the variables at g."""
        return [line for offset, type, text in self.initialisers for line in self._initialise(offset, type, text)]

    def _initialise(self, offset: int, type: str, text: str) -> list[str]:
        width = SIZE[CPP_TYPE[type]]
        values = [v.strip() for v in (re.sub("[{}]", " ", text).split(",") if text.startswith("{") else [text])]
        literals = [parse_literal(v) for v in values]
        if width == 1 and all(literals):
            numbers = ", ".join(str(int(v, 0) & 255) for v in values)
            return [f"{{ static const u8 bytes[] = {{{numbers}}}; memcpy(mapped_bytes((u64)g + {offset}), bytes, sizeof bytes); }}"]
        lines = []
        for i, (value, literal) in enumerate(zip(values, literals)):
            at = f"(u64)mapped_bytes((u64)g + {offset + i * width})"
            if literal:
                lines.append(f"store<{UNSIGNED[width]}>({at}, ({UNSIGNED[width]})({literal.text}));")
            else:
                lines.append(f"store<u64>({at}, {self._initial_address(value)});")
        return lines

    def _initial_address(self, text: str) -> str:
        found = re.fullmatch(rf"(?:generic\()?\s*({NAME})\s*\)?\s*(?:\+\s*(\d+))?", text)
        if found and found[1] in self.globals:
            return f"(u64)(g + {self.globals[found[1]].offset}) + {found[2] or 0}"
        if found and found[1] in self.functions:
            return f"(u64)(Function)&F_{identifier(found[1])}"
        raise ValueError(f"initial value {text}: neither a number nor an address in the module")
