"""PTX's moves, memory accesses, barriers, warp collectives and control flow as C++; ptx_memory.h has what they are written with."""
import re

from ptx_function import FunctionBody, Instruction, Untranslated
from ptx_handlers import put_parts, translates
from ptx_source import SIZE, UNSIGNED, identifier, split_operands

ORDERS = {"relaxed": "__ATOMIC_RELAXED", "volatile": "__ATOMIC_RELAXED", "mmio": "__ATOMIC_RELAXED",
          "acquire": "__ATOMIC_ACQUIRE", "release": "__ATOMIC_RELEASE"}  # fmt: skip


def in_braces(operand: str) -> list[str] | None:
    return split_operands(operand[1:-1]) if operand.startswith("{") else None


def joined(f: FunctionBody, operands: list[str], width: int, whole: str) -> str:
    """Several values of `width` bytes, the first lowest, as one."""
    return " | ".join(f"(({whole}){f.value(x, UNSIGNED[width])} << {n * width * 8})" for n, x in enumerate(operands))


# ---- moves and memory


@translates("mov")
def move(f: FunctionBody, i: Instruction) -> None:
    to, source = i.operands
    if parts := in_braces(to):
        total = SIZE[i.cpp_type]
        width = total // len(parts)
        f.emit(f"{{ {UNSIGNED[total]} packed = {f.value(source, UNSIGNED[total])};")
        put_parts(f, parts, lambda n: f"({UNSIGNED[width]})(packed >> {n * width * 8})")
        f.emit("}")
    elif parts := in_braces(source):
        total = SIZE[i.cpp_type]
        f.put(to, joined(f, parts, total // len(parts), UNSIGNED[total]))
    else:
        f.put(to, f.value(source, i.cpp_type))


def vector_length(i: Instruction) -> int:
    return int((i.one_of("v2", "v4", "v8") or "v1")[1:])


@translates("ld", "ldu")
def load(f: FunctionBody, i: Instruction) -> None:
    to, source = i.operands[:2]
    type, length = i.cpp_type, vector_length(i)
    width = SIZE[type]
    bits, total = UNSIGNED[width], width * length
    order = ORDERS[o] if (o := i.one_of(*ORDERS)) and i.space != "local" else None
    parts = in_braces(to) or [to]
    if i.space == "param":
        base = f.parameter(source)
        put_parts(f, parts, lambda n: f"load<{type}>({base} + {n * width})")
        return
    address = f.memory(i, source, total)
    if length == 1:
        f.put(to, f"as<{type}>(load_atomic<{bits}, {order}>({address}, T))" if order else f"load<{type}>({address})")
        return
    if total == 16 and i.space != "local":
        f.emit(f"{{ V16 packed = load16({address}, T);")
        put_parts(f, parts, lambda n: f"as<{type}>(({bits})(packed.{'lo' if n * width < 8 else 'hi'} >> {n * width % 8 * 8}))")
    elif total == 8:
        f.emit(f"{{ u64 packed = {f'load_atomic<u64, {order}>({address}, T)' if order else f'load<u64>({address})'};")
        put_parts(f, parts, lambda n: f"as<{type}>(({bits})(packed >> {n * width * 8}))")
    else:
        f.emit(f"{{ u64 from = {address};")
        f.emit(f"{type} " + ", ".join(f"e{n} = load<{type}>(from + {n * width})" for n in range(length)) + ";")
        put_parts(f, parts, lambda n: f"e{n}")
    f.emit("}")
    if i.has("acquire"):
        f.emit("fence();")


@translates("st")
def store(f: FunctionBody, i: Instruction) -> None:
    to, source = i.operands[:2]
    type, length = i.cpp_type, vector_length(i)
    width = SIZE[type]
    bits, total = UNSIGNED[width], width * length
    order = ORDERS[o] if (o := i.one_of(*ORDERS)) and i.space != "local" else None
    parts = in_braces(source) or [source]
    if i.space == "param":
        base = f.parameter(to)
        for n, part in enumerate(parts):
            f.emit(f"store<{type}>({base} + {n * width}, {f.value(part, type)});")
        return
    address = f.memory(i, to, total)
    if length == 1:
        f.emit(f"store_atomic<{bits}, {order}>({address}, {f.value(source, bits)}, T);" if order
               else f"store<{type}>({address}, {f.value(source, type)});")  # fmt: skip
        return
    if i.has("release"):
        f.emit("fence();")
    if total == 16 and i.space != "local":
        half = len(parts) // 2
        f.emit(f"store16({address}, V16{{{joined(f, parts[:half], width, 'u64')}, {joined(f, parts[half:], width, 'u64')}}});")
    elif total == 8:
        value = joined(f, parts, width, "u64")
        f.emit(f"store_atomic<u64, __ATOMIC_RELAXED>({address}, {value}, T);" if order else f"store<u64>({address}, {value});")
    else:
        f.emit(f"{{ u64 to = {address};")
        for n, part in enumerate(parts):
            f.emit(f"store<{type}>(to + {n * width}, {f.value(part, type)});")
        f.emit("}")


@translates("atom", "red")
def atomic(f: FunctionBody, i: Instruction) -> None:
    operation = i.one_of("add", "min", "max", "inc", "dec", "and", "or", "xor", "exch", "cas")
    if i.type in ("f16x2", "bf16x2", "b128") or operation is None or vector_length(i) > 1:
        raise Untranslated
    type = i.cpp_type
    operands = i.operands if i.name == "red" else i.operands[1:]
    address = f.memory(i, operands[0], SIZE[type])
    x = f.value(operands[1], type)
    new = {
        "add": f"op_add<{type}>(old, {x})", "min": f"op_min<{type}>(old, {x})", "max": f"op_max<{type}>(old, {x})",
        "inc": f"old >= {x} ? 0 : old + 1", "dec": f"(old == 0 || old > {x}) ? {x} : old - 1",
        "and": f"old & {x}", "or": f"old | {x}", "xor": f"old ^ {x}", "exch": x,
    }.get(operation)  # fmt: skip
    if new is None:  # cas
        new = f"old == {x} ? {f.value(operands[2], type)} : old"
    result = new if type in ("f16", "bf16") else f"({type})({new})"
    expression = f"update<{type}>({address}, [&]({type} old) -> {type} {{ return {result}; }}, T)"
    if i.name == "red" or i.operands[0] == "_":
        f.emit(expression + ";")
    else:
        f.put(i.operands[0], expression)


@translates("membar", "fence")
def fence(f: FunctionBody, i: Instruction) -> None:
    if i.has("proxy") and not i.has("alias"):
        raise Untranslated  # orders accesses of engines that aren't simulated
    f.emit("fence();")


@translates("cp")
def copy_async(f: FunctionBody, i: Instruction) -> None:
    if not i.has("async") or i.has("bulk") or i.has("mbarrier"):
        raise Untranslated
    if i.has("commit_group") or i.has("wait_group") or i.has("wait_all"):
        return
    size = i.operands[2]
    source = f"global({f.address(i.operands[1])}, {size}, T)"
    f.emit(f"copy_to_shared((u64)T->shared + {f.address(i.operands[0])}, {source}, {size});")


@translates("cvta")
def convert_address(f: FunctionBody, i: Instruction) -> None:
    value = f.value(i.operands[1], "u64")
    if i.space == "shared":
        value = f"({value} - (u64)T->shared)" if i.has("to") else f"((u64)T->shared + {value})"
    f.put(i.operands[0], value)


@translates("isspacep")
def is_in_space(f: FunctionBody, i: Instruction) -> None:
    if i.space == "shared":
        f.put(i.operands[0], f"({f.value(i.operands[1], 'u64')} - (u64)T->shared < kSharedWindow)")
    else:
        f.put(i.operands[0], "true" if i.space == "global" else "false")


# ---- barriers and warps


@translates("bar", "barrier")
def barrier(f: FunctionBody, i: Instruction) -> None:
    kind = next(m for m in i.modifiers if m != "cta")
    count = lambda n: f.value(i.operands[n], "u32") if len(i.operands) > n else "0"
    if kind == "warp":
        f.emit(f"csim_warp(W_SYNC, {count(0)}, 0, 0, 0, nullptr);")
    elif kind == "sync":
        f.emit(f"csim_barrier_sync({count(0)}, {count(1)});")
    elif kind == "arrive":
        f.emit(f"csim_barrier_arrive({count(0)}, {count(1)});")
    elif kind == "red":
        reduction = {"popc": "kPopulationCount", "and": "kAnd", "or": "kOr"}[i.one_of("popc", "and", "or") or ""]
        threads = count(2) if len(i.operands) > 3 else "0"
        result = f"csim_barrier_reduce({count(1)}, {threads}, {reduction}, {f.value(i.operands[-1], 'bool')})"
        f.put(i.operands[0], result if i.has("popc") else f"(bool){result}")
    else:
        raise Untranslated  # clusters


def warp_with_predicate(f: FunctionBody, destinations: str, call: str) -> None:
    """call takes &second, the place of its second result."""
    value, _, predicate = destinations.partition("|")
    f.emit(f"{{ u32 second = 0; u32 first = (u32){call};")
    if value.strip() != "_":
        f.put(value, "first")
    if predicate.strip() not in ("", "_"):
        f.put(predicate, "(bool)second")
    f.emit("(void)first; }")


@translates("shfl")
def shuffle(f: FunctionBody, i: Instruction) -> None:
    to, *operands = i.operands
    value, lane, clamp, mask = (f.value(x, "u32") for x in operands)
    warp_with_predicate(f, to, f"csim_warp(W_SHFL_{i.modifiers[1].upper()}, {mask}, {value}, {lane}, {clamp}, &second)")


@translates("vote")
def vote(f: FunctionBody, i: Instruction) -> None:
    kind = i.modifiers[1]
    operation = "W_BALLOT" if kind == "ballot" else f"W_VOTE_{kind.upper()}"
    to, predicate, mask = i.operands
    result = f"csim_warp({operation}, {f.value(mask, 'u32')}, {f.value(predicate, 'bool')}, 0, 0, nullptr)"
    f.put(to, f"(u32){result}" if kind == "ballot" else f"(bool){result}")


@translates("match")
def match(f: FunctionBody, i: Instruction) -> None:
    to, value, mask = i.operands
    operation = f"W_MATCH_{i.modifiers[0].upper()}"
    warp_with_predicate(f, to, f"csim_warp({operation}, {f.value(mask, 'u32')}, {f.value(value, i.cpp_type)}, 0, 0, &second)")


@translates("redux")
def reduce_warp(f: FunctionBody, i: Instruction) -> None:
    to, value, mask = i.operands
    operation = i.modifiers[1].upper()
    if operation in ("MIN", "MAX"):
        if i.type not in ("s32", "u32"):
            raise Untranslated
        operation += "_S" if i.type == "s32" else "_U"
    f.put(to, f"(u32)csim_warp(W_RED_{operation}, {f.value(mask, 'u32')}, {f.value(value, 'u32')}, 0, 0, nullptr)")


@translates("activemask")
def active_mask(f: FunctionBody, i: Instruction) -> None:
    f.put(i.operands[0], "(1u << T->lane)")  # this lane alone: always a legal answer


@translates("elect")
def elect(f: FunctionBody, i: Instruction) -> None:
    lane, _, predicate = i.operands[0].partition("|")
    f.emit(f"{{ u32 leader = __builtin_ctz({f.value(i.operands[1], 'u32')});")
    if lane.strip() != "_":
        f.put(lane, "leader")
    f.put(predicate, "T->lane == leader")
    f.emit("}")


# ---- control flow


@translates("nanosleep")
def nanosleep(f: FunctionBody, i: Instruction) -> None:
    f.emit("csim_nanosleep();")


@translates("prefetch", "prefetchu", "discard", "applypriority", "griddepcontrol", "pmevent", "setmaxnreg")
def hint(f: FunctionBody, i: Instruction) -> None:
    pass


@translates("trap", "brkpt")
def trap(f: FunctionBody, i: Instruction) -> None:
    f.emit("csim_trap();")


@translates("exit")
def exit_thread(f: FunctionBody, i: Instruction) -> None:
    if not f.is_entry:
        raise Untranslated
    f.emit("return;")


@translates("ret")
def return_(f: FunctionBody, i: Instruction) -> None:
    f.emit("return;")


@translates("bra")
def branch(f: FunctionBody, i: Instruction) -> None:
    label = i.operands[0]
    if label in f.passed_labels:
        f.emit("LOOP();")
    f.emit(f"goto {f.label(label)};")


@translates("brx")
def branch_indexed(f: FunctionBody, i: Instruction) -> None:
    f.emit(f"LOOP(); switch ({f.value(i.operands[0], 'u32')}) {{")
    for n, label in enumerate(f.branch_tables[i.operands[1]]):
        f.emit(f"case {n}: goto {f.label(label)};")
    f.emit("default: __builtin_unreachable(); }")


@translates("call")
def call(f: FunctionBody, i: Instruction) -> None:
    found = re.match(r"^(?:\(\s*([\w$%]+)\s*\)\s*,\s*)?([\w$%]+)\s*(?:,\s*\(([^)]*)\))?", i.text)
    if not found:
        raise Untranslated
    symbol = lambda name: f.find(name).cpp
    result = symbol(found[1]) if found[1] else "nullptr"
    name = found[2]
    arguments = [symbol(a) for a in split_operands(found[3] or "")]
    pointer = lambda n: f"mapped_bytes(load<u64>((u64){arguments[n]}))"
    if name == "vprintf":
        f.emit(f"csim_printf((const char*)load<u64>((u64){arguments[0]}), (const char*)load<u64>((u64){arguments[1]}));")
        f.emit(f"memset({result}, 0, 4);")
    elif name == "__assertfail":
        f.emit(f"csim_assert_fail({pointer(0)}, {pointer(1)}, load<u32>((u64){arguments[2]}), {pointer(3)});")
    else:
        target = f"F_{identifier(name)}" if name in f.module.functions else f"((Function){f.value(name, 'u64')})"
        f.emit(f"{{ char* passed[] = {{{', '.join(arguments) or 'nullptr'}}}; {target}({result}, passed, T); }}")
