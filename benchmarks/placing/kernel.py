"""Scoring nodes and choosing one, over flat columns of integers: compiled if numba is installed, the same without.

Every function here means the same to Python, with lists, and to numba, with arrays of 64-bit integers: no slices, no
negative indexes, nothing that could leave 64 bits. `placing.compiled` loads this file twice, once for each, and
tests check that both agree.

A smaller key of a node for a size of task is better; `NO_ROOM` means that the task does not fit. Keys are cached per
size and computed again only for nodes that have changed since the size was last used: `log` has every change, `latest`
a node's last entry in it, and `read` how far each size has read. The least key of every `BLOCK` nodes is kept, so that
the best node is found in a few steps. Of equal keys, the lowest node wins.
"""

from typing import Any

RANDOM, BEST_FIT, FGD, PACK = 0, 1, 2, 3

BLOCK = 64
NO_ROOM = 1 << 62
KEY_BITS = 20
CORE_BITS = 10
QUANTUM = (1 << 20) // 1000
MILLI = 1000
CPU_MOST, GPU_MOST = 128_000, 8_000
"""The divisors of cores and GPUs in the published BestFit."""


def node_worth(cores: Any, cpu: int, sums: Any, at: int, rows: int) -> int:
    """The value of a node with `cpu` idle cores and these sums over its GPUs; see `values`."""
    least = NO_ROOM
    for row in range(rows):
        value = (cores[row] * cpu >> CORE_BITS) + sums[at + row]
        if value < least:
            least = value
    return least


def sum_up(fleet: Any, node: int) -> None:
    """Compute the sums of one node again, and its value."""
    kind, cpu, _memory, gpu, gpus, width, tables, cores, unit, columns, sums, value = fleet
    rows = len(cores)
    base = kind[node] * rows * columns
    for row in range(rows):
        total = 0
        for i in range(gpus[node]):
            total += tables[base + row * columns + gpu[node * width + i] // unit]
        sums[node * rows + row] = total
    value[node] = node_worth(cores, cpu[node], sums, node * rows, rows)


def worth_after(
    tables: Any, cores: Any, sums: Any, at: int, line: int, columns: int, cpu: int, count: int, before: int, after: int,
    spare: Any,
) -> int:  # fmt: skip
    """The value of a node with this many cores, if `count` of its GPUs move from one column to another.

    `at` is the offset of its sums, `line` that of its kind's tables.
    """
    for row in range(len(cores)):
        spare[row] = sums[at + row] + count * (tables[line + after] - tables[line + before])
        line += columns
    return node_worth(cores, cpu, spare, 0, len(cores))


def seen_before(gpu: Any, first: int, at: int) -> bool:
    """Whether an earlier GPU has just as much left: then this one need not be tried."""
    i = first
    while gpu[i] != gpu[at]:
        i += 1
    return i < at


def pack_key(
    kind: Any, cpu: Any, gpu: Any, have: Any, width: int, tables: Any, cores: Any, unit: int, columns: int, sums: Any,
    value: Any, node: int, cpu_milli: int, gpus: int, milli: int, spare: Any,
) -> tuple[int, int]:  # fmt: skip
    """The cost of the placement, then what stays idle on the node; and the GPU, the one with the least left."""
    first = node * width
    last = first + have[node]
    rest = -gpus * milli
    for i in range(first, last):
        rest += gpu[i]
    left_cpu = cpu[node] - cpu_milli
    rows = len(cores)
    at, line = node * rows, kind[node] * rows * columns
    if gpus != 1 or milli == MILLI:
        full, part = MILLI // unit, (MILLI - milli) // unit
        after = worth_after(tables, cores, sums, at, line, columns, left_cpu, gpus, full, part, spare)
        return (((value[node] - after) // QUANTUM) << KEY_BITS) + rest, 0
    best, chosen, least = NO_ROOM, 0, NO_ROOM
    for i in range(first, last):
        left = gpu[i]
        if left < milli or seen_before(gpu, first, i):
            continue
        full, part = left // unit, (left - milli) // unit
        after = worth_after(tables, cores, sums, at, line, columns, left_cpu, 1, full, part, spare)
        lost = (value[node] - after) // QUANTUM
        if lost < best or (lost == best and left < least):
            best, chosen, least = lost, i - first, left
    return (best << KEY_BITS) + rest, chosen


def useful(
    gpu: Any, first: int, last: int, sizes: Any, weights: Any, base: int, most: int, classes: int, within: int,
    changed: int, left: int, count: int, milli: int,
) -> int:  # fmt: skip
    """U of `packing.fgd.measure`: weight x idle milli that the expected tasks could use, with GPUs as if changed.

    GPU `changed` has `left`; or, with `count`, that many GPUs with at least `milli` have lost it. `within` is how many
    of the core counts that make a difference are within reach.
    """
    found = 0
    for z in range(len(sizes)):
        fitting, number, taken = 0, 0, 0
        for i in range(first, last):
            free = gpu[i]
            if i == changed:
                free = left
            elif taken < count and free >= milli:
                taken += 1
                free -= milli
            if free >= sizes[z]:
                fitting += free
                number += 1
        if number:
            if number > most:
                number = most
            found += fitting * weights[base + (z * (most + 1) + number) * classes + within]
    return found


def within_reach(limits: Any, first: int, last: int, cpu: int) -> int:
    """How many of a kind's core counts are at most this."""
    count = 0
    for i in range(first, last):
        if limits[i] > cpu:
            break
        count += 1
    return count


def fgd_score(thresholds: Any, gain: int) -> int:
    """The score of an improvement: how many thresholds it reaches."""
    low, high = 0, len(thresholds)
    while low < high:
        middle = (low + high) // 2
        if thresholds[middle] <= gain:
            low = middle + 1
        else:
            high = middle
    return low


def fgd_key(
    frag: Any, kind: Any, cpu: Any, gpu: Any, have: Any, width: int, node: int, cpu_milli: int, gpus: int, milli: int,
) -> tuple[int, int]:  # fmt: skip
    """Highest score first; and the GPU that has it."""
    sizes, limits, limit_at, weights, most, classes, thresholds, total = frag
    group = kind[node]
    base = group * len(sizes) * (most + 1) * classes
    first = node * width
    last = first + have[node]
    had = within_reach(limits, limit_at[group], limit_at[group + 1], cpu[node])
    has = within_reach(limits, limit_at[group], limit_at[group + 1], cpu[node] - cpu_milli)
    kept = total * gpus * milli - useful(
        gpu, first, last, sizes, weights, base, most, classes, had, -1, 0, 0, 0
    )
    if gpus != 1 or milli == MILLI:
        after = useful(gpu, first, last, sizes, weights, base, most, classes, has, -1, 0, gpus, milli)
        return 100 - fgd_score(thresholds, kept + after), 0
    best, chosen = -1, 0
    for i in range(first, last):
        left = gpu[i]
        if left < milli or seen_before(gpu, first, i):
            continue
        after = useful(gpu, first, last, sizes, weights, base, most, classes, has, i, left - milli, 0, 0)
        score = fgd_score(thresholds, kept + after)
        if score > best:
            best, chosen = score, i - first
    return 100 - best, chosen


def best_fit_key(
    cpu: Any, gpu: Any, have: Any, width: int, node: int, cpu_milli: int, gpus: int, milli: int
) -> tuple[int, int]:
    """Least left over of cores and GPUs, in hundredths as published; and the GPU with the least that suffices."""
    idle, chosen, least = 0, 0, NO_ROOM
    for i in range(have[node]):
        left = gpu[node * width + i]
        idle += left
        if milli <= left < least:
            chosen, least = i, left
    rest = (cpu[node] - cpu_milli) * GPU_MOST + (idle - gpus * milli) * CPU_MOST
    return -((2 * CPU_MOST * GPU_MOST - rest) * 50 // (CPU_MOST * GPU_MOST)), chosen


def has_room(
    cpu: Any, memory: Any, gpu: Any, have: Any, width: int, node: int, cpu_milli: int, memory_mib: int, gpus: int,
    milli: int,
) -> bool:  # fmt: skip
    """Whether the task fits, computed without keys."""
    if cpu[node] < cpu_milli or memory[node] < memory_mib:
        return False
    fitting = 0
    for i in range(node * width, node * width + have[node]):
        if gpu[i] >= milli:
            fitting += 1
    return fitting >= gpus


def key_of(policy: int, fleet: Any, frag: Any, node: int, size: Any, at: int, spare: Any) -> tuple[int, int]:
    """The key of a node for a size of task, and the GPU for a share."""
    kind, cpu, memory, gpu, have, width, tables, cores, unit, columns, sums, value = fleet
    cpu_milli, memory_mib, gpus, milli = size[at], size[at + 1], size[at + 2], size[at + 3]
    if not has_room(cpu, memory, gpu, have, width, node, cpu_milli, memory_mib, gpus, milli):
        return NO_ROOM, 0
    if policy == PACK:
        return pack_key(
            kind,
            cpu,
            gpu,
            have,
            width,
            tables,
            cores,
            unit,
            columns,
            sums,
            value,
            node,
            cpu_milli,
            gpus,
            milli,
            spare,
        )
    if policy == FGD:
        return fgd_key(frag, kind, cpu, gpu, have, width, node, cpu_milli, gpus, milli)
    if policy == BEST_FIT:
        return best_fit_key(cpu, gpu, have, width, node, cpu_milli, gpus, milli)
    return 0, 0


def least_of_block(keys: Any, start: int, end: int) -> int:
    """The least key in a range."""
    least = NO_ROOM
    for i in range(start, end):
        if keys[i] < least:
            least = keys[i]
    return least


def refresh(policy: int, fleet: Any, frag: Any, cache: Any, sizes: Any, size: int, spare: Any) -> None:
    """Compute the keys of one size for the nodes that have changed since it was last used."""
    keys, blocks, log, latest, read, state, allowed, kinds, empty = cache
    kind, cpu, memory, gpu, have, width, _tables, _cores, _unit, _columns, _sums, _value = fleet
    nodes = len(kind)
    wants_cpu, wants_memory = sizes[size * 4], sizes[size * 4 + 1]
    gpus, milli = sizes[size * 4 + 2], sizes[size * 4 + 3]
    per = (nodes + BLOCK - 1) // BLOCK
    if not read[size]:
        for i in range(kinds):
            empty[i] = -NO_ROOM
    for i in range(read[size], state[0]):
        node = log[i]
        if latest[node] != i or not allowed[size * kinds + kind[node]]:
            continue
        at = size * nodes + node
        before = keys[at]
        if not has_room(cpu, memory, gpu, have, width, node, wants_cpu, wants_memory, gpus, milli):
            key = NO_ROOM
        elif i < nodes and empty[kind[node]] != -NO_ROOM:
            # The log starts with every node, empty: all nodes of a kind are alike.
            key = empty[kind[node]]
        else:
            key = key_of(policy, fleet, frag, node, sizes, size * 4, spare)[0]
            if i < nodes:
                empty[kind[node]] = key
        keys[at] = key
        block = size * per + node // BLOCK
        if key <= blocks[block]:
            blocks[block] = key
        elif before == blocks[block]:
            start = node - node % BLOCK
            end = start + BLOCK
            if end > nodes:
                end = nodes
            blocks[block] = least_of_block(keys, size * nodes + start, size * nodes + end)
    read[size] = state[0]


def best_node(cache: Any, nodes: int, size: int) -> int:
    """The lowest node with the least key; -1: none has room."""
    keys, blocks = cache[0], cache[1]
    per = (nodes + BLOCK - 1) // BLOCK
    least, where = NO_ROOM, -1
    for i in range(per):
        if blocks[size * per + i] < least:
            least, where = blocks[size * per + i], i
    if where < 0:
        return -1
    node = where * BLOCK
    while keys[size * nodes + node] != least:
        node += 1
    return node


def drawn(values: Any, first: int, last: int, low: int, high: int, draw: int) -> int:
    """One of the entries in a range with a value from `low` to below `high`, by a random number; -1: there is none."""
    count = 0
    for i in range(first, last):
        if low <= values[i] < high:
            count += 1
    skip = draw % count if count else -1
    for i in range(first, last):
        if low <= values[i] < high:
            if not skip:
                return i - first
            skip -= 1
    return -1


def take(fleet: Any, cache: Any, node: int, chosen: int, size: Any, at: int) -> None:
    """Place a task and log the node."""
    gpu, have, width = fleet[3], fleet[4], fleet[5]
    log, latest, state = cache[2], cache[3], cache[5]
    gpus, milli = size[at + 2], size[at + 3]
    fleet[1][node] -= size[at]
    fleet[2][node] -= size[at + 1]
    if gpus == 1 and milli < MILLI:
        gpu[node * width + chosen] -= milli
    else:
        left = gpus
        for i in range(have[node]):
            if left > 0 and gpu[node * width + i] >= milli:
                gpu[node * width + i] -= milli
                left -= 1
    sum_up(fleet, node)
    log[state[0]] = node
    latest[node] = state[0]
    state[0] += 1


def arrive(
    policy: int, fleet: Any, frag: Any, cache: Any, sizes: Any, size: int, draw: int, spare: Any
) -> int:
    """One task arrives: returns the node it is placed on, or -1."""
    nodes = len(fleet[0])
    refresh(policy, fleet, frag, cache, sizes, size, spare)
    if policy == RANDOM:
        node = drawn(cache[0], size * nodes, (size + 1) * nodes, 0, NO_ROOM, draw)
    else:
        node = best_node(cache, nodes, size)
    if node < 0:
        return -1
    at = size * 4
    chosen = 0
    if sizes[at + 2] == 1 and sizes[at + 3] < MILLI:
        if policy == RANDOM:
            first = node * fleet[5]
            chosen = drawn(fleet[3], first, first + fleet[4][node], sizes[at + 3], NO_ROOM, draw // nodes)
        else:
            chosen = key_of(policy, fleet, frag, node, sizes, at, spare)[1]
    take(fleet, cache, node, chosen, sizes, at)
    return node


def run(
    policy: int, fleet: Any, frag: Any, cache: Any, sizes: Any, order: Any, draws: Any, went: Any, spare: Any,
    check: int,
) -> int:  # fmt: skip
    """Let tasks arrive one by one; none of them leaves. `went` gets the node of each, or -1.

    Returns how many were refused although they would have fitted: with `check`, every node is checked again.
    """
    kind, cpu, memory, gpu, have, width = fleet[0], fleet[1], fleet[2], fleet[3], fleet[4], fleet[5]
    allowed, kinds = cache[6], cache[7]
    wrong = 0
    for i in range(len(order)):
        size = order[i]
        went[i] = arrive(policy, fleet, frag, cache, sizes, size, draws[i], spare)
        if check and went[i] < 0:
            at = size * 4
            for node in range(len(kind)):
                if allowed[size * kinds + kind[node]] and has_room(
                    cpu,
                    memory,
                    gpu,
                    have,
                    width,
                    node,
                    sizes[at],
                    sizes[at + 1],
                    sizes[at + 2],
                    sizes[at + 3],
                ):
                    wrong += 1
                    break
    return wrong
