#!/usr/bin/env python3
"""Profiles of other systems as test_cut.c reads them: a line a node, in a topological order,

    SECONDS BYTES MESSAGE [READER...]

MESSAGE: what it costs to send the node's result; readers are numbers of lines, from 0.

    convert.py msr-fiddle/dnn-partitioning throughput-inputs/*/*_inference.json   # ms as they are
    convert.py msr-fiddle/dnn-partitioning throughput-inputs/LayerGraphs/*_training.json
    convert.py msr-fiddle/pipedream profiler/image_classification/profiles/*/graph.txt
"""
import heapq
import json
import os
import re
import sys


def sort(nodes, edges):
    """nodes: id -> (time, bytes, message); the order: Kahn's, the least id first."""
    after, waits = {n: [] for n in nodes}, {n: 0 for n in nodes}
    for a, b in edges:
        if b not in after[a]:
            after[a].append(b)
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
    place = {n: i for i, n in enumerate(order)}
    return [(nodes[n], sorted(place[b] for b in after[n])) for n in order]


def both_ways(d):
    """Of training: a layer and its backward are of one color, one place for both; the backward's edges
    run beside the others, each with its message: so one layer of both has both messages."""
    color = {n["id"]: n["colorClass"] for n in d["nodes"]}
    back = {n["id"] for n in d["nodes"] if n["isBackwardNode"]}
    edges = [{(color[e["sourceId"]], color[e["destId"]]) for e in d["edges"]
              if (e["sourceId"] in back, e["destId"] in back) == way} for way in ((0, 0), (1, 1))]
    assert edges[0] == edges[1] and not [e for e in d["edges"] if (e["sourceId"] in back) != (e["destId"] in back)]
    cost = {e["sourceId"]: e["cost"] for e in d["edges"]}
    nodes = {}
    for n in d["nodes"]:
        t, size, message = nodes.get(n["colorClass"], (0, 0, 0))
        nodes[n["colorClass"]] = (t + n["fpgaLatency"], size + n["size"], message + cost.get(n["id"], 0))
    return sort(nodes, sorted(edges[0]))


def fiddle(path):
    d = json.load(open(path))
    if path.endswith("_training.json"):
        return "training-" + os.path.basename(path).replace("_training.json", ""), both_ways(d)
    cost = {e["sourceId"]: e["cost"] for e in d["edges"]}
    nodes = {n["id"]: (n["fpgaLatency"], n["size"], cost.get(n["id"], 0)) for n in d["nodes"]}
    kind = "layers" if "LayerGraphs" in path else "operators"
    name = os.path.basename(path).replace("_inference.json", "").lower()
    return f"{kind}-{name}", sort(nodes, [(e["sourceId"], e["destId"]) for e in d["edges"]])


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
            nodes[n] = (0 if name.startswith("Input") else ms / 1e3, float(f["parameter_size"]), 0)
    return "pipedream-" + os.path.basename(os.path.dirname(path)), sort(nodes, edges)


for path in sys.argv[2:]:
    name, rows = (pipedream if "pipedream" in sys.argv[1] else fiddle)(path)
    with open(name + ".txt", "w") as f:
        for (time, size, message), readers in rows:
            print(*(f"{x:.9g}" for x in (time, size, message)), *readers, file=f)
