// SPDX-License-Identifier: MIT OR Apache-2.0

//! Calls between functions, and the stack that the deepest chain of calls uses.

use std::collections::{BTreeMap, BTreeSet};

/// Bytes that a call puts on the stack beside the frame of the function: the return address.
pub const RETURN_ADDRESS: u32 = 8;

/// Functions by address: their frames, and their callees.
#[derive(Default)]
pub struct Graph {
    frames: BTreeMap<u32, u32>,
    callees: BTreeMap<u32, BTreeSet<u32>>,
}

/// The deepest chain that begins with a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Depth {
    /// Bytes of it, from the return address of the first function to the end of the last frame.
    pub bytes: u32,
    /// The next function of the chain.
    pub next: Option<u32>,
}

impl Graph {
    /// Adds a part of a function. The largest frame of all parts counts.
    pub fn add_frame(&mut self, function: u32, frame: u32) {
        let largest = self.frames.entry(function).or_default();
        *largest = (*largest).max(frame);
    }

    pub fn add_call(&mut self, from: u32, to: u32) {
        self.frames.entry(from).or_default();
        self.frames.entry(to).or_default();
        self.callees.entry(from).or_default().insert(to);
    }

    pub fn frame(&self, function: u32) -> u32 {
        self.frames.get(&function).copied().unwrap_or_default()
    }

    /// Returns the depth of each function. `rounds` bounds how often each function of a recursion is on the stack.
    ///
    /// # Errors
    /// The recursions without a bound.
    pub fn depths(
        &self,
        mut rounds: impl FnMut(&BTreeSet<u32>) -> Option<u32>,
    ) -> Result<BTreeMap<u32, Depth>, Vec<BTreeSet<u32>>> {
        let mut depths = BTreeMap::<u32, Depth>::new();
        let mut unbounded = Vec::new();
        for group in self.groups() {
            let callees = group.iter().filter_map(|function| self.callees.get(function)).flatten();
            let outside = callees.filter(|callee| !group.contains(callee)).copied();
            let deepest = outside.max_by_key(|callee| depths.get(callee).map_or(0, |depth| depth.bytes));
            let below = deepest.and_then(|callee| depths.get(&callee)).map_or(0, |depth| depth.bytes);
            let own = group.iter().map(|function| self.frame(*function).saturating_add(RETURN_ADDRESS));
            let own = own.fold(0, u32::saturating_add);
            let is_recursive = group.iter().any(|function| {
                self.callees
                    .get(function)
                    .is_some_and(|callees| callees.iter().any(|callee| group.contains(callee)))
            });
            let times = if is_recursive { rounds(&group) } else { Some(1) };
            if times.is_none() {
                unbounded.push(group.clone());
            }
            let bytes = own.saturating_mul(times.unwrap_or(1)).saturating_add(below);
            depths.extend(group.iter().map(|&function| (function, Depth { bytes, next: deepest })));
        }
        if unbounded.is_empty() { Ok(depths) } else { Err(unbounded) }
    }

    /// Returns the functions in groups of those that call each other, callees before callers.
    fn groups(&self) -> Vec<BTreeSet<u32>> {
        let mut search = Search { graph: self, order: BTreeMap::new(), open: Vec::new(), groups: Vec::new() };
        for &function in self.frames.keys() {
            if !search.order.contains_key(&function) {
                search.visit(function);
            }
        }
        search.groups
    }
}

/// Tarjan's search for strongly connected components.
struct Search<'graph> {
    graph: &'graph Graph,
    /// When each function was visited.
    order: BTreeMap<u32, usize>,
    /// Functions that are in no group yet.
    open: Vec<u32>,
    groups: Vec<BTreeSet<u32>>,
}

impl Search<'_> {
    /// Visits a function and all that it calls. Returns the earliest function, in the order of visits, that it reaches.
    fn visit(&mut self, function: u32) -> usize {
        let number = self.order.len();
        self.order.insert(function, number);
        let height = self.open.len();
        self.open.push(function);
        let mut earliest = number;
        for &callee in self.graph.callees.get(&function).into_iter().flatten() {
            let reached = match self.order.get(&callee) {
                None => self.visit(callee),
                Some(&visited) if self.open.contains(&callee) => visited,
                Some(_) => continue,
            };
            earliest = earliest.min(reached);
        }
        if earliest == number {
            self.groups.push(self.open.split_off(height).into_iter().collect());
        }
        earliest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(frames: &[(u32, u32)], calls: &[(u32, u32)]) -> Graph {
        let mut graph = Graph::default();
        for &(function, frame) in frames {
            graph.add_frame(function, frame);
        }
        for &(from, to) in calls {
            graph.add_call(from, to);
        }
        graph
    }

    fn bytes(graph: &Graph, rounds: Option<u32>) -> BTreeMap<u32, u32> {
        let depths = graph.depths(|_| rounds).unwrap();
        depths.into_iter().map(|(function, depth)| (function, depth.bytes)).collect()
    }

    #[test]
    fn the_deepest_of_several_chains_counts() {
        let calls = [(1, 2), (1, 3), (2, 4), (3, 4)];
        let graph = graph(&[(1, 100), (2, 16), (3, 40), (4, 8)], &calls);
        let all = bytes(&graph, None);
        assert_eq!(all[&4], 8 + 8);
        assert_eq!(all[&1], 100 + 8 + 40 + 8 + 8 + 8);
        assert_eq!(graph.depths(|_| None).unwrap()[&1].next, Some(3));
    }

    #[test]
    fn a_function_without_a_frame_has_a_return_address() {
        assert_eq!(bytes(&graph(&[(1, 0)], &[(1, 2)]), None)[&1], 16);
    }

    #[test]
    fn parts_of_a_function_do_not_add_up() {
        assert_eq!(bytes(&graph(&[(1, 24), (1, 56), (1, 40)], &[]), None)[&1], 64);
    }

    #[test]
    fn recursion_needs_a_bound_and_counts_that_often() {
        let direct = graph(&[(1, 32), (2, 8)], &[(1, 1), (1, 2)]);
        assert_eq!(direct.depths(|_| None).unwrap_err(), [BTreeSet::from([1])]);
        assert_eq!(bytes(&direct, Some(3))[&1], 3 * 40 + 16);
        // 2 and 3 call each other; 4 is below them.
        let chain = graph(&[(1, 0), (2, 16), (3, 24), (4, 100)], &[(1, 2), (2, 3), (3, 2), (3, 4)]);
        assert_eq!(chain.depths(|_| None).unwrap_err(), [BTreeSet::from([2, 3])]);
        assert_eq!(bytes(&chain, Some(2))[&1], 8 + 2 * (24 + 32) + 108);
    }

    #[test]
    fn two_recursions_that_meet_are_one() {
        let calls = [(1, 2), (2, 1), (2, 3), (3, 4), (4, 3), (4, 1)];
        assert_eq!(graph(&[], &calls).depths(|_| None).unwrap_err(), [BTreeSet::from([1, 2, 3, 4])]);
    }
}
