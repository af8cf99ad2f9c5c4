// SPDX-License-Identifier: MIT OR Apache-2.0

//! Which file uses which, and by which names: imports, and calls of methods that another file of a split `impl` defines.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    methods::Call,
    modules::{self, Tree},
    resolve::{self, Target},
};

/// One file's imports from another, and calls of its methods.
pub struct Edge {
    pub from: usize,
    pub to: usize,
    /// The names, each with the line that mentions it first.
    pub names: BTreeMap<String, usize>,
}

pub struct Imports {
    pub edges: Vec<Edge>,
}

impl Imports {
    /// The imports between the files of a crate, and the `calls` of methods.
    pub fn of(tree: &Tree, calls: &[Call]) -> Self {
        let mut edges = BTreeMap::<(usize, usize), BTreeMap<String, usize>>::new();
        for (index, module) in tree.modules.iter().enumerate() {
            let mut add = |targets: BTreeSet<Target>, name: &str, line: usize| {
                for target in targets {
                    // A module is a way to a name; the name counts where it is used.
                    if let Target::File(to) = target
                        && to != module.file
                    {
                        edges.entry((module.file, to)).or_default().entry(name.to_owned()).or_insert(line);
                    }
                }
            };
            for mention in &module.mentions {
                if let [name] = mention.path.as_slice() {
                    // A lone name is defined here, or imported by a line that counts itself, or a macro of a file above.
                    if mention.invoked
                        && !module.names.contains_key(name)
                        && let Some(&file) = tree.macros.get(name)
                    {
                        add(BTreeSet::from([Target::File(file)]), name, mention.line);
                    }
                } else {
                    let (targets, name) = resolve::path(tree, index, &mention.path);
                    add(targets, name, mention.line);
                }
            }
            for glob in &module.globs {
                for target in resolve::path(tree, index, &glob.path).0 {
                    let Target::Module(inner) = target else {
                        add(BTreeSet::from([target]), "*", glob.line);
                        continue;
                    };
                    for (name, line) in modules::heads(module) {
                        if !module.names.contains_key(name) && name != "crate" && name != "super" {
                            add(resolve::member(tree, inner, name), name, line);
                        }
                    }
                }
            }
        }
        for call in calls {
            edges
                .entry((call.from, call.to))
                .or_default()
                .entry(format!("{}()", call.name))
                .or_insert(call.line);
        }
        let edges = edges.into_iter().map(|((from, to), names)| Edge { from, to, names }).collect();
        Self { edges }
    }

    /// Importing and imported file of each edge.
    pub fn pairs(&self) -> BTreeSet<(usize, usize)> {
        self.edges.iter().map(|edge| (edge.from, edge.to)).collect()
    }
}
