// SPDX-License-Identifier: MIT OR Apache-2.0

//! Circles of a directed graph: its strongly connected components (Tarjan 1972), and edges that break them.

use std::collections::{BTreeMap, BTreeSet};

/// The strongly connected components of more than one node, each sorted, in the order of their first node.
pub fn find(nodes: usize, edges: &BTreeSet<(usize, usize)>) -> Vec<Vec<usize>> {
    let mut search =
        Search { edges, state: vec![None; nodes], stack: Vec::new(), next: 0, found: Vec::new() };
    for node in 0..nodes {
        if search.state[node].is_none() {
            search.visit(node);
        }
    }
    search.found.sort();
    search.found
}

#[derive(Clone, Copy)]
struct Visited {
    index: usize,
    low: usize,
    on_stack: bool,
}

struct Search<'a> {
    edges: &'a BTreeSet<(usize, usize)>,
    state: Vec<Option<Visited>>,
    stack: Vec<usize>,
    next: usize,
    found: Vec<Vec<usize>>,
}

impl Search<'_> {
    /// Visits what can be reached from `node` and returns the lowest index on the stack that it reaches.
    fn visit(&mut self, node: usize) -> usize {
        let index = self.next;
        self.next += 1;
        self.stack.push(node);
        self.state[node] = Some(Visited { index, low: index, on_stack: true });
        let mut low = index;
        for &(_, to) in self.edges.range((node, 0)..=(node, usize::MAX)) {
            match self.state[to] {
                None => low = low.min(self.visit(to)),
                Some(visited) if visited.on_stack => low = low.min(visited.index),
                Some(_) => {}
            }
        }
        self.state[node] = Some(Visited { index, low, on_stack: true });
        if low == index {
            let start = self.stack.iter().rposition(|&n| n == node).unwrap_or(0);
            let mut component = self.stack.split_off(start);
            for &member in &component {
                if let Some(visited) = &mut self.state[member] {
                    visited.on_stack = false;
                }
            }
            if component.len() > 1 {
                component.sort_unstable();
                self.found.push(component);
            }
        }
        self.state[node].map_or(low, |visited| visited.low)
    }
}

/// Edges without which `circle` is none: few and light ones, not the fewest (the heuristic of Eades, Lin and Smyth 1993).
pub fn upward(circle: &[usize], edges: &[(usize, usize, usize)]) -> Vec<(usize, usize)> {
    let mut left: BTreeSet<usize> = circle.iter().copied().collect();
    let (mut top, mut bottom) = (Vec::new(), Vec::new());
    while !left.is_empty() {
        let weight = |node: usize, outgoing: bool| -> usize {
            let is_counted = |&&(from, to, _): &&(usize, usize, usize)| {
                let (here, there) = if outgoing { (from, to) } else { (to, from) };
                here == node && left.contains(&there)
            };
            edges.iter().filter(is_counted).map(|edge| edge.2).sum()
        };
        let sink = left.iter().copied().find(|&node| weight(node, true) == 0);
        let source = left.iter().copied().find(|&node| weight(node, false) == 0);
        let node = if let Some(node) = sink {
            bottom.push(node);
            node
        } else {
            let balance =
                |&node: &usize| weight(node, true).cast_signed() - weight(node, false).cast_signed();
            let Some(node) = source.or_else(|| left.iter().copied().max_by_key(balance)) else { break };
            top.push(node);
            node
        };
        left.remove(&node);
    }
    top.extend(bottom.into_iter().rev());
    let height: BTreeMap<usize, usize> = top.into_iter().enumerate().map(|(at, node)| (node, at)).collect();
    edges.iter().filter(|(from, to, _)| height[from] > height[to]).map(|&(from, to, _)| (from, to)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn components_of_more_than_one_node_are_found() {
        let edges = BTreeSet::from([(0, 1), (1, 2), (2, 1), (3, 4), (4, 5), (5, 3), (2, 6)]);
        assert_eq!(find(7, &edges), [vec![1, 2], vec![3, 4, 5]]);
    }

    #[test]
    fn the_lightest_edge_is_proposed_to_be_cut() {
        assert_eq!(upward(&[0, 1], &[(0, 1, 7), (1, 0, 1)]), [(1, 0)]);
    }
}
