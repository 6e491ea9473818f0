#!/usr/bin/env python3
"""Profiles of other systems as test_cut.c reads them: a line a node, in a topological order,

    SECONDS BYTES MESSAGE [READER...] [, MESSAGE READER...]...

MESSAGE: what it costs to send a result of the node; readers are numbers of lines, from 0, with ~ where
the backward reads it and no forward does: of the two nodes either may come first.

    convert.py msr-fiddle/dnn-partitioning throughput-inputs/*/*.json   # ms as they are
    convert.py msr-fiddle/pipedream profiler/image_classification/profiles/*/graph.txt
"""
import heapq
import json
import os
import re
import sys


def sort(edges, nodes):
    """The order: Kahn's, the least id first."""
    after, waits = {n: set() for n in nodes}, {n: 0 for n in nodes}
    for a, b in set(edges):
        after[a].add(b)
        waits[b] += 1
    ready, order = [n for n in nodes if not waits[n]], []
    heapq.heapify(ready)
    while ready:
        n = heapq.heappop(ready)
        order.append(n)
        for b in after[n]:
            waits[b] -= 1
            if not waits[b]:
                heapq.heappush(ready, b)
    assert len(order) == len(nodes)
    return order


def reached(edges, start):
    """What comes after start, or is."""
    after = {}
    for a, b in edges:
        after.setdefault(a, []).append(b)
    seen, open_ = {start}, [start]
    while open_:
        for b in after.get(open_.pop(), []):
            if b not in seen:
                seen.add(b)
                open_.append(b)
    return seen


def places(nodes, edges, training):
    """Nodes by the place that must be one, and the order of places, as dnn-partitioning has them: in
    training nodes of one color, forward and backward, are one; the order is that of forwards, and a color
    of backwards alone has that of its edges, turned round; what is in a circle then is one as well."""
    if not training:
        return {n: n for n in nodes}, edges
    color = {i: n.get("colorClass", -1 - i) for i, n in nodes.items()}
    back = {i for i, n in nodes.items() if n["isBackwardNode"]}
    forward = {color[i] for i in nodes if i not in back}
    order = {(color[a], color[b]) for a, b in edges if a not in back and b not in back}
    order |= {(color[b], color[a]) for a, b in edges
              if a in back and b in back and not {color[a], color[b]} <= forward}
    after = {c: reached(order, c) for c in color.values()}
    one = {c: min(x for x in after[c] if c in after[x]) for c in after}
    return {i: one[color[i]] for i in nodes}, [(one[a], one[b]) for a, b in order if one[a] != one[b]]


def fiddle(path):
    d = json.load(open(path))
    training = path.endswith("_training.json")
    nodes = {n["id"]: n for n in d["nodes"]}
    edges = [(e["sourceId"], e["destId"]) for e in d["edges"]]
    place, order = places(nodes, edges, training)
    total, value = {p: (0, 0) for p in place.values()}, {p: {} for p in place.values()}
    for i, n in nodes.items():
        time, size = total[place[i]]
        total[place[i]] = (time + n["fpgaLatency"], size + n["size"])
    readers, before = {}, set(order)
    for a, b in edges:
        if place[a] != place[b]:
            readers.setdefault(a, set()).add(place[b])
    cost = {e["sourceId"]: e["cost"] for e in d["edges"]}
    for i, r in readers.items():
        of = value[place[i]]
        of[frozenset(r)] = of.get(frozenset(r), 0) + cost[i]
    for a, b in before:  # which no value has
        if not any(b in r for r in value[a]):
            value[a][frozenset([b])] = 0
    kind = "layers" if "LayerGraphs" in path else "operators"
    name = re.sub("_(inference|training).json", "", os.path.basename(path)).lower()
    if training:
        kind = "training" if kind == "layers" else "training-operators"
    return f"{kind}-{name}", total, value, before


def pipedream(path):
    nodes, edges = {}, []
    for line in open(path):
        if line.startswith("\t"):
            a, b = re.findall(r"node(\d+)", line)
            edges.append((int(a), int(b)))
        elif line.strip():
            n = int(re.match(r"node(\d+)", line).group(1))
            f = dict(re.findall(r"(\w+)=([0-9.]+)(?:,|\s|$)", line.split(" -- ")[-1]))
            name = line.split(" -- ")[1]
            ms = float(f["forward_compute_time"]) + float(f["backward_compute_time"])
            nodes[n] = (0 if name.startswith("Input") else ms / 1e3, float(f["parameter_size"]))
    value = {n: {frozenset(b for a, b in edges if a == n): 0} for n in nodes}
    return "pipedream-" + os.path.basename(os.path.dirname(path)), nodes, value, set(edges)


def line(n, total, value, before, at):
    results = []
    for readers, cost in value[n].items():
        numbers = sorted((at[r], "" if (n, r) in before else "~") for r in readers)
        results.append((numbers, " ".join([f"{cost:.9g}"] + [f"{back}{r}" for r, back in numbers])))
    return " ".join([f"{x:.9g}" for x in total[n]] + [" , ".join(x for _, x in sorted(results)) or "0"])


for path in sys.argv[2:]:
    name, total, value, before = (pipedream if "pipedream" in sys.argv[1] else fiddle)(path)
    at = {n: i for i, n in enumerate(sort(before, total))}
    with open(name + ".txt", "w") as f:
        for n in at:
            print(line(n, total, value, before, at), file=f)
