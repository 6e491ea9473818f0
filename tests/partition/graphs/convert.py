#!/usr/bin/env python3
"""Profiles of other systems as test_cut.c reads them: a line a node, in a topological order,

    SECONDS BYTES MESSAGE [READER...] [, MESSAGE READER...]...

MESSAGE: what it costs to send a result of the node; readers are numbers of lines, from 0, with ~ where
the backward reads it and no forward does: of the two nodes either may come first.

    convert.py msr-fiddle/pipedream profiler/image_classification/profiles/*/graph.txt
"""
import heapq
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
    name, total, value, before = pipedream(path)
    at = {n: i for i, n in enumerate(sort(before, total))}
    with open(name + ".txt", "w") as f:
        for n in at:
            print(line(n, total, value, before, at), file=f)
