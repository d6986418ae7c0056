"""Networks that sort and merge in vector registers: comparisons that exchange lanes, without branches.

Keys are unsigned. A network for `vectors` treats them as one sequence of all their lanes. Lanes are permuted by x86's
instruction with indices in a register: LLVM takes long to compile shuffles with constant ones.
"""

from __future__ import annotations

from collections.abc import Sequence

from hloom.backends.cpu.kernels.kernel_function import KernelFunction
from hloom.backends.cpu.llvm.processor import processor
from hloom.lir import Global, IndexValue, Type, Value, constant, lane_indices, type_of

MAX_VECTORS = 16
"""Vectors that a network sorts: half of the registers of AVX-512, all of AVX2's."""


def has_networks(vector_bytes: int) -> bool:
    """Whether the processor permutes the lanes of vectors of this size."""
    return processor().architecture == "x86_64" and 32 <= vector_bytes <= processor().vector_bytes


def sorted_vectors(f: KernelFunction, vectors: Sequence[Value]) -> list[Value]:
    """Sorts the lanes of a power of two of vectors.

    Lanes are sorted across vectors; these columns are merged in pairs, pairs of pairs, and so on. Two are merged as an
    ascending and a descending sequence: keys that are to descend are inverted while they are sorted.
    """
    type = vectors[0].type
    odd = _lanes_with_bit(f, type, 1)
    columns = [f.binary("xor", vector, odd) for vector in _ordered(f, vectors)]
    for low, high in _odd_even_merge_sort(len(columns)):
        _compare_exchange(f, columns, low, high)
    with f.loop(type.width.bit_length() - 1, carried=columns) as level:
        bit = f.binary("shl", f.index(1), f.index(level.index))
        inverted = f.binary("xor", _lanes_with_bit(f, type, bit), _lanes_with_bit(f, type, f.add(bit, bit)))
        columns = [f.binary("xor", column, inverted) for column in level.carried]
        columns = _sorted_bitonic_lanes(f, columns, bit, f.add(level.index, 1))
        _sort_bitonic_columns(f, columns)
        level.carried[:] = columns
    return _interleaved(f, _ordered(f, level.carried))


def merged(f: KernelFunction, low: Value, high: Value) -> tuple[Value, Value]:
    """Merges two sorted vectors."""
    width = low.type.width
    halves = _ordered(f, [low, _xor_permuted(f, high, f.index(width - 1))])
    _compare_exchange(f, halves, 0, 1)
    low, high = _ordered(f, _sorted_bitonic_lanes(f, halves, f.index(width // 2), width.bit_length() - 1))
    return low, high


def _is_signed(type: Type) -> bool:
    """Whether keys are compared as signed integers: AVX2 has no minima of 64 bits, and no unsigned comparisons."""
    return type.bits == 64 and type.width == 4


def _ordered(f: KernelFunction, keys: Sequence[Value]) -> list[Value]:
    """Converts unsigned keys to those of the order in which they are compared, and back."""
    type = keys[0].type
    sign = constant(type, -(1 << type.bits - 1))
    return [f.binary("xor", key, sign) for key in keys] if _is_signed(type) else [*keys]


def _sorted_bitonic_lanes(f: KernelFunction, columns: list[Value], bit: Value, stages: IndexValue) -> list[Value]:
    """Sorts groups of 2 * `bit` lanes, each of which ascends and then descends, or the reverse."""
    type = columns[0].type
    with f.loop(stages, carried=columns) as stage:
        distance = f.binary("lshr", bit, f.index(stage.index))
        keeps_greater = f.compare("ne", _lanes_with_bit(f, type, distance), constant(type, 0))
        for k, value in enumerate(stage.carried):
            partner = _xor_permuted(f, value, distance)
            if _is_signed(type):
                is_greater = f.binary("xor", f.compare("sgt", value, partner), keeps_greater)
                stage.carried[k] = f.select(is_greater, partner, value)
            else:
                lesser, greater = f.intrinsic("umin", value, partner), f.intrinsic("umax", value, partner)
                stage.carried[k] = f.select(keeps_greater, greater, lesser)
    return stage.carried


def _lanes_with_bit(f: KernelFunction, type: Type, bit: IndexValue) -> Value:
    """Returns all bits of the lanes whose indices have a bit, none of the others."""
    bits = f.splat(f.convert("trunc", f.index(bit), type.element) if type.bits < 64 else f.index(bit), type.width)
    has_bit = f.compare("ne", f.binary("and", lane_indices(type), bits), constant(type, 0))
    return f.convert("sext", has_bit, type.element)


def _xor_permuted(f: KernelFunction, value: Value, distance: Value) -> Value:
    """Swaps lanes whose indices differ by the bits of `distance`."""
    words, per_lane = type_of("i32", value.type.width * value.type.bits // 32), value.type.bits // 32
    step = f.convert("trunc", f.index(f.multiply(distance, per_lane)), "i32")
    indices = f.binary("xor", lane_indices(words), f.splat(step, words.width))
    return _permuted(f, value, indices)


def _permuted(f: KernelFunction, value: Value, indices: Value) -> Value:
    """Permutes words of 32 bits by their indices."""
    name = {8: "avx2.permd", 16: "avx512.permvar.si.512"}[indices.type.width]
    return f.bitcast(f.call(f"llvm.x86.{name}", indices.type, f.bitcast(value, indices.type), indices), value.type)


def _sort_bitonic_columns(f: KernelFunction, columns: list[Value]) -> None:
    """Sorts lanes across vectors, each of which ascends and then descends, or the reverse."""
    distance = len(columns) // 2
    while distance:
        for low in range(len(columns)):
            if not low & distance:
                _compare_exchange(f, columns, low, low + distance)
        distance //= 2


def partition(f: KernelFunction, values: Value, is_lesser: Value) -> Value:
    """Moves the lanes of a mask before the others."""
    type, every = values.type, constant(is_lesser.type, True)
    if type.bits * type.width < 512:
        return _partition_by_table(f, values, is_lesser)
    move, zero = f"llvm.x86.avx512.mask.{{}}.{type.suffix}", constant(type, 0)
    is_first = f.first_lanes(population_count(f, is_lesser), type.width)
    rest = f.call(move.format("compress"), type, values, zero, f.binary("xor", is_lesser, every))
    rest = f.call(move.format("expand"), type, rest, zero, f.binary("xor", is_first, every))
    return f.call(move.format("compress"), type, values, rest, is_lesser)


def population_count(f: KernelFunction, mask: Value) -> Value:
    """Returns the number of lanes in a mask."""
    bits = f.bitcast(mask, type_of(f"i{mask.type.width}"))
    return f.convert("zext", f.intrinsic("ctpop", bits), "i64")


def _partition_by_table(f: KernelFunction, values: Value, is_lesser: Value) -> Value:
    """Partitions lanes by a table that has the indices of 32-bit words for each mask."""
    width = values.type.width
    words, per_lane = 256 // 32, values.type.bits // 32
    rows = [sorted(range(words), key=lambda word: not mask >> word // per_lane & 1) for mask in range(1 << width)]
    table = f.address_of(Global(f"partition{width}", bytes(word for row in rows for word in row)))
    mask = f.convert("zext", f.bitcast(is_lesser, type_of(f"i{width}")), "i64")
    row = f.load(f.at(table, f.multiply(mask, words), "i8"), type_of("i8", words), 1)
    return _permuted(f, values, f.convert("zext", row, "i32"))


def median(f: KernelFunction, a: Value, b: Value, c: Value) -> Value:
    """Returns the median of three, in each lane."""
    low, high = f.intrinsic("umin", a, b), f.intrinsic("umax", a, b)
    return f.intrinsic("umax", low, f.intrinsic("umin", high, c))


def _compare_exchange(f: KernelFunction, columns: list[Value], low: int, high: int) -> None:
    a, b, sign = columns[low], columns[high], "s" if _is_signed(columns[low].type) else "u"
    columns[low], columns[high] = f.intrinsic(f"{sign}min", a, b), f.intrinsic(f"{sign}max", a, b)


def _interleaved(f: KernelFunction, columns: list[Value]) -> list[Value]:
    """Returns all columns, one after the other: vectors i and i + half are interleaved, log2(len(columns)) times."""
    half, width = len(columns) // 2, columns[0].type.width
    if not half:
        return columns
    low = [lane // 2 + lane % 2 * width for lane in range(width)]
    high = [lane + width // 2 for lane in low]
    with f.loop(half.bit_length(), carried=columns) as level:
        pairs = [(level.carried[i], level.carried[i + half]) for i in range(half)]
        level.carried[:] = [f.shuffle(a, b, lanes) for a, b in pairs for lanes in (low, high)]
    return level.carried


def _odd_even_merge_sort(count: int) -> list[tuple[int, int]]:
    """Returns the comparators of Batcher's odd-even merge sort for a power of two of keys."""
    comparators: list[tuple[int, int]] = []

    def merge(first: int, length: int, step: int) -> None:
        if 2 * step >= length:
            comparators.append((first, first + step))
            return
        merge(first, length, 2 * step)
        merge(first + step, length, 2 * step)
        comparators.extend((k, k + step) for k in range(first + step, first + length - step, 2 * step))

    def sort(first: int, length: int) -> None:
        if length > 1:
            sort(first, length // 2)
            sort(first + length // 2, length // 2)
            merge(first, length, 1)

    sort(0, count)
    return comparators
