"""PTX's comparisons, conversions and arithmetic as C++; ptx_arithmetic.h has what they are written with."""
from ptx_function import FunctionBody, Instruction, Untranslated
from ptx_handlers import put_parts, translates
from ptx_source import CPP_TYPE, SIZE

COMPARISONS = {name: name.upper() for name in
               ("eq ne lt le gt ge lo ls hi hs equ neu ltu leu gtu geu num").split()} | {"nan": "NAN_"}  # fmt: skip


def flushed(i: Instruction, expression: str) -> str:
    return f"ftz({expression})" if i.has("ftz") and i.type == "f32" else expression


# ---- comparisons and conversions


@translates("setp", "set")
def compare(f: FunctionBody, i: Instruction) -> None:
    type = i.cpp_type
    to, a, b = i.operands[:3]
    compared = f"cmp<{COMPARISONS[i.modifiers[0]]}, {type}>({f.value(a, type)}, {f.value(b, type)})"
    combination = i.one_of("and", "or", "xor")
    combined = lambda c: c
    if combination:
        operator = {"and": "&&", "or": "||", "xor": "!="}[combination]
        third = f.value(i.operands[3], "bool")
        combined = lambda c: f"({c}) {operator} ({third})"
    if i.name == "set":
        yes, no = ("1.0f", "0.0f") if i.modifiers[-2] == "f32" else ("0xffffffffu", "0u")
        f.put(to, f"({combined(compared)} ? {yes} : {no})")
        return
    first, bar, second = to.partition("|")
    if not bar:
        f.put(to, combined(compared))
        return
    f.emit(f"{{ bool first = {combined(compared)}, second = {combined('!' + compared)};")
    put_parts(f, [first.strip(), second.strip()], lambda n: ("first", "second")[n])
    f.emit("(void)first; (void)second; }")


@translates("selp")
def select(f: FunctionBody, i: Instruction) -> None:
    type = i.cpp_type
    to, a, b, predicate = i.operands
    f.put(to, f"({f.value(predicate, 'bool')} ? {f.value(a, type)} : {f.value(b, type)})")


@translates("slct")
def select_by_sign(f: FunctionBody, i: Instruction) -> None:
    type = CPP_TYPE[i.modifiers[-2]]
    to, a, b, c = i.operands
    f.put(to, f"({f.value(c, i.cpp_type)} >= 0 ? {f.value(a, type)} : {f.value(b, type)})")


@translates("cvt")
def convert(f: FunctionBody, i: Instruction) -> None:
    to_type, from_type = i.modifiers[-2:]
    to, source = i.operands[:2]
    if to_type in ("e4m3x2", "e5m2x2"):
        narrow = f"f2{to_type[:-2]}"
        if from_type == "f32":
            high, low = (f"{narrow}({f.value(x, 'f32')})" for x in i.operands[1:3])
        else:
            both = f.value(source, "u32")
            high, low = (f"{narrow}(h2f(f16{{(u16)({both} >> {shift})}}))" for shift in (16, 0))
        f.put(to, f"(u16)((u16){high} << 8 | {low})")
    elif from_type in ("e4m3x2", "e5m2x2"):
        both = f.value(source, "u16")
        high, low = (f"f2h({from_type[:-2]}2f((u8)({both} >> {shift}))).b" for shift in (8, 0))
        f.put(to, f"((u32){high} << 16 | {low})")
    elif to_type in ("f16x2", "bf16x2"):
        narrow = "f2h" if to_type == "f16x2" else "f2b"
        high, low = (f"{narrow}({f.value(x, 'f32')}).b" for x in i.operands[1:3])
        f.put(to, f"((u32){high} << 16 | {low})")
    else:
        rounding = i.one_of("rn", "rz", "rm", "rp", "rni", "rzi", "rmi", "rpi") or "rn"
        letter = rounding[1].upper() if rounding.endswith("i") else rounding[1]
        cpp_to, cpp_from = CPP_TYPE[to_type], CPP_TYPE[from_type]
        saturate = "true" if i.has("sat") else "false"
        converted = f"cvt<'{letter}', {saturate}, {cpp_to}>({f.value(source, cpp_from)})"
        f.put(to, f"ftz({converted})" if i.has("ftz") and cpp_to == cpp_from == "f32" else converted)


# ---- arithmetic


def packed_halves(f: FunctionBody, i: Instruction) -> bool:
    """add.f16x2 and the like: the operation on both halves."""
    if i.type not in ("f16x2", "bf16x2"):
        return False
    if i.name not in ("add", "sub", "mul", "fma", "min", "max", "neg", "abs"):
        raise Untranslated
    type = i.type[:-2]
    part = lambda x, shift: f"{type}{{(u16)({f.value(x, 'u32')} >> {shift})}}"
    low, high = (f"op_{i.name}<{type}>({', '.join(part(x, shift) for x in i.operands[1:])}).b" for shift in (0, 16))
    f.put(i.operands[0], f"((u32){high} << 16 | {low})")
    return True


def with_carry(f: FunctionBody, i: Instruction) -> bool:
    takes, gives = i.name.endswith("c"), i.has("cc")
    if not takes and not gives:
        return False
    type = i.cpp_type
    if i.name.startswith("mad"):
        product = "mulhi" if i.has("hi") else "op_mul"
        x, last = f"{product}<{type}>({f.value(i.operands[1], type)}, {f.value(i.operands[2], type)})", i.operands[3]
    else:
        x, last = f.value(i.operands[1], type), i.operands[2]
    operation = "subc_" if i.name.startswith("sub") else "addc_"
    f.emit("{ u64 carry;")
    f.put(i.operands[0], f"{operation}<{type}>({x}, {f.value(last, type)}, {'CF' if takes else '0'}, carry)")
    f.emit("CF = carry; }" if gives else "(void)carry; }")
    return True


@translates("add", "addc", "sub", "subc", "div", "rem", "min", "max")
def two_operands(f: FunctionBody, i: Instruction) -> None:
    if packed_halves(f, i) or with_carry(f, i):
        return
    type = i.cpp_type
    to, a, b = i.operands
    result = f"op_{i.name}<{type}>({f.value(a, type)}, {f.value(b, type)})"
    if i.has("sat"):
        if type != "f32":
            raise Untranslated
        result = f"std::min(std::max({result}, 0.f), 1.f)"
    f.put(to, flushed(i, result))


@translates("mul", "mad", "mul24", "mad24", "madc")
def multiply(f: FunctionBody, i: Instruction) -> None:
    if packed_halves(f, i) or (i.name in ("mad", "madc") and with_carry(f, i)):
        return
    if i.has("sat"):
        raise Untranslated
    type = i.cpp_type
    a, b = (f.value(x, type) for x in i.operands[1:3])
    adds = i.name.startswith("mad")
    if i.has("wide"):
        wide = {"u16": "u32", "s16": "s32", "u32": "u64", "s32": "s64"}[type]
        result = f"({wide})({wide})({a}) * ({wide})({b})"
        if adds:
            result = f"op_add<{wide}>({result}, {f.value(i.operands[3], wide)})"
    elif type in ("f32", "f64", "f16", "bf16"):
        result = f"op_fma<{type}>({a}, {b}, {f.value(i.operands[3], type)})" if adds else f"op_mul<{type}>({a}, {b})"
    else:
        result = f"{'mulhi' if i.has('hi') else 'op_mul'}<{type}>({a}, {b})"
        if adds:
            result = f"op_add<{type}>({result}, {f.value(i.operands[3], type)})"
    f.put(i.operands[0], flushed(i, result))


@translates("fma")
def fused_multiply_add(f: FunctionBody, i: Instruction) -> None:
    if packed_halves(f, i):
        return
    if i.has("sat") or i.has("relu"):
        raise Untranslated
    type = i.cpp_type
    a, b, c = (f.value(x, type) for x in i.operands[1:])
    f.put(i.operands[0], flushed(i, f"op_fma<{type}>({a}, {b}, {c})"))


@translates("neg", "abs")
def sign(f: FunctionBody, i: Instruction) -> None:
    if not packed_halves(f, i):
        f.put(i.operands[0], flushed(i, f"op_{i.name}<{i.cpp_type}>({f.value(i.operands[1], i.cpp_type)})"))


@translates("and", "or", "xor")
def bitwise(f: FunctionBody, i: Instruction) -> None:
    type = i.cpp_type
    to, a, b = i.operands
    operator = {"and": "&", "or": "|", "xor": "^"}[i.name]
    f.put(to, f"({type})({f.value(a, type)} {operator} {f.value(b, type)})")


@translates("not")
def complement(f: FunctionBody, i: Instruction) -> None:
    value = f.value(i.operands[1], i.cpp_type)
    f.put(i.operands[0], f"!{value}" if i.type == "pred" else f"({i.cpp_type})~{value}")


@translates("cnot")
def is_zero(f: FunctionBody, i: Instruction) -> None:
    f.put(i.operands[0], f"({i.cpp_type})({f.value(i.operands[1], i.cpp_type)} == 0)")


@translates("shl", "shr")
def shift(f: FunctionBody, i: Instruction) -> None:
    to, a, n = i.operands
    f.put(to, f"{i.name}_<{i.cpp_type}>({f.value(a, i.cpp_type)}, {f.value(n, 'u32')})")


@translates("shf")
def funnel_shift(f: FunctionBody, i: Instruction) -> None:
    operands = ", ".join(f.value(x, "u32") for x in i.operands[1:])
    f.put(i.operands[0], f"shf_{i.modifiers[0]}({operands}, {'true' if i.modifiers[1] == 'wrap' else 'false'})")


@translates("prmt", "lop3")
def bytes_or_bits(f: FunctionBody, i: Instruction) -> None:
    if len(i.modifiers) > 1:
        raise Untranslated  # prmt's modes
    f.put(i.operands[0], f"{i.name}_({', '.join(f.value(x, 'u32') for x in i.operands[1:])})")


@translates("bfe", "bfi")
def bit_field(f: FunctionBody, i: Instruction) -> None:
    values = 2 if i.name == "bfi" else 1
    operands = [f.value(x, i.cpp_type if n < values else "u32") for n, x in enumerate(i.operands[1:])]
    f.put(i.operands[0], f"{i.name}_<{i.cpp_type}>({', '.join(operands)})")


@translates("bfind")
def find_bit(f: FunctionBody, i: Instruction) -> None:
    shift_amount = "true" if i.has("shiftamt") else "false"
    f.put(i.operands[0], f"bfind_<{i.cpp_type}>({f.value(i.operands[1], i.cpp_type)}, {shift_amount})")


@translates("popc", "clz", "brev")
def bit_counts(f: FunctionBody, i: Instruction) -> None:
    value, bits = f.value(i.operands[1], i.cpp_type), SIZE[i.cpp_type] * 8
    result = {"popc": f"(u32)__builtin_popcountll({value})", "brev": f"brev{bits}({value})",
              "clz": f"(u32)({value} ? __builtin_clzll((u64){value}) - {64 - bits} : {bits})"}[i.name]  # fmt: skip
    f.put(i.operands[0], result)


@translates("sad")
def sum_of_difference(f: FunctionBody, i: Instruction) -> None:
    type = i.cpp_type
    a, b, c = (f.value(x, type) for x in i.operands[1:])
    f.put(i.operands[0], f"op_add<{type}>({c}, {a} < {b} ? {b} - {a} : {a} - {b})")


FUNCTIONS = {"rcp": "1 / {}", "sqrt": "std::sqrt({})", "rsqrt": "1 / std::sqrt({})", "sin": "std::sin({})", "cos": "std::cos({})",
             "lg2": "std::log2({})", "ex2": "std::exp2({})", "tanh": "std::tanh({})"}  # fmt: skip


@translates(*FUNCTIONS)
def elementary_function(f: FunctionBody, i: Instruction) -> None:
    type = i.cpp_type
    if type not in ("f32", "f64"):
        raise Untranslated
    f.put(i.operands[0], flushed(i, f"({type})({FUNCTIONS[i.name].format(f.value(i.operands[1], type))})"))


@translates("copysign")
def copy_sign(f: FunctionBody, i: Instruction) -> None:
    to, sign_of, magnitude = i.operands
    f.put(to, f"std::copysign({f.value(magnitude, i.cpp_type)}, {f.value(sign_of, i.cpp_type)})")


@translates("testp")
def classify(f: FunctionBody, i: Instruction) -> None:
    test = {"finite": "std::isfinite", "infinite": "std::isinf", "number": "!std::isnan", "notanumber": "std::isnan",
            "normal": "std::isnormal"}[i.modifiers[0]]  # fmt: skip
    f.put(i.operands[0], f"{test}({f.value(i.operands[1], i.cpp_type)})")
