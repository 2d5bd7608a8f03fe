"""Cycles in a graph of operations: where there are any, and a short one to show.

Nothing here recurses: a cycle may run through every operation of a long history.
"""

from collections import deque
from collections.abc import Iterator
from typing import Final, NamedTuple

TRIES: Final = 50  # nodes of a component from which a short cycle is looked for


class Edge(NamedTuple):
    """One operation comes before another, and the value that shows it."""

    source: int
    target: int
    kind: int  # a bit, so that the kinds of a path can be added up
    row: int


class Graph:
    """Directed edges; of those alike only the first is kept."""

    def __init__(self) -> None:
        self._edges: dict[int, dict[tuple[int, int], Edge]] = {}

    def add(self, edge: Edge) -> None:
        """Put an edge in, unless there is one of its kind between the two."""
        self._edges.setdefault(edge.source, {}).setdefault((edge.target, edge.kind), edge)

    def edges_of(self, node: int, kinds: int) -> list[Edge]:
        """The edges of these kinds that leave a node."""
        return [edge for edge in self._edges.get(node, {}).values() if edge.kind & kinds]

    def components(self, kinds: int) -> Iterator[list[int]]:
        """Sets of nodes that all reach one another by edges of these kinds (after Tarjan)."""
        index: dict[int, int] = {}
        low: dict[int, int] = {}
        stack: list[int] = []
        stacked: set[int] = set()
        for root in self._edges:
            if root in index:
                continue
            path = [(root, iter(self.edges_of(root, kinds)))]
            index[root] = low[root] = len(index)
            stack.append(root)
            stacked.add(root)
            while path:
                node, edges = path[-1]
                for edge in edges:
                    target = edge.target
                    if target not in index:
                        path.append((target, iter(self.edges_of(target, kinds))))
                        index[target] = low[target] = len(index)
                        stack.append(target)
                        stacked.add(target)
                        break
                    if target in stacked:
                        low[node] = min(low[node], index[target])
                else:
                    path.pop()
                    if path:
                        low[path[-1][0]] = min(low[path[-1][0]], low[node])
                    if low[node] == index[node]:
                        component = _unwind(stack, node)
                        stacked.difference_update(component)
                        if len(component) > 1:
                            yield sorted(component)

    def short_cycle(
        self, component: list[int], kinds: int, *, with_all: bool = False
    ) -> list[Edge]:
        """The shortest cycle through the first nodes of a component; empty if there is none.

        `with_all` asks for a cycle that has an edge of every kind.
        """
        members = set(component)
        shortest: list[Edge] = []
        for start in component[:TRIES]:
            found = self._cycle_from(start, members, kinds, with_all=with_all)
            if found and (not shortest or len(found) < len(shortest)):
                shortest = found
            if len(shortest) == 2:
                break
        return shortest

    def _cycle_from(
        self, start: int, members: set[int], kinds: int, *, with_all: bool
    ) -> list[Edge]:
        """Breadth first; where all kinds are wanted, a node counts anew with each set of them."""
        came_by: dict[tuple[int, int], tuple[tuple[int, int], Edge]] = {}
        queue = deque([(start, 0)])
        while queue:
            state = queue.popleft()
            for edge in self.edges_of(state[0], kinds):
                reached = edge.target, (state[1] | edge.kind) if with_all else 0
                if edge.target == start:
                    if not with_all or reached[1] == kinds:
                        return [*_path(came_by, state), edge]
                elif edge.target in members and reached not in came_by:
                    came_by[reached] = state, edge
                    queue.append(reached)
        return []


def _unwind(stack: list[int], node: int) -> list[int]:
    at = len(stack) - 1
    while stack[at] != node:
        at -= 1
    component = stack[at:]
    del stack[at:]
    return component


def _path(
    came_by: dict[tuple[int, int], tuple[tuple[int, int], Edge]], state: tuple[int, int]
) -> list[Edge]:
    path: list[Edge] = []
    while state in came_by:
        state, edge = came_by[state]
        path.append(edge)
    return path[::-1]
