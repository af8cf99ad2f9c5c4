// SPDX-License-Identifier: MIT OR Apache-2.0

//! The module tree of a crate: its files, and per module the names it defines and imports and the paths it mentions.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use proc_macro2::{TokenStream, TokenTree};
use syn::{
    Attribute, Ident, Item, ItemMacro, ItemMod, Meta, UseTree, Visibility, spanned::Spanned as _,
    visit::Visit,
};

use super::{
    attributes::{of_item, only_for_tests},
    impls::Impl,
};

pub struct Tree {
    pub files: Vec<SourceFile>,
    /// The crate's root module comes first.
    pub modules: Vec<Module>,
    /// The file of each `macro_rules!`, by name: such macros are visible by their position, too.
    pub macros: BTreeMap<String, usize>,
}

pub struct SourceFile {
    /// Relative to the workspace.
    pub path: PathBuf,
    /// The text of its `//!` lines, joined.
    pub header: String,
}

#[derive(Default)]
pub struct Module {
    pub parent: usize,
    pub file: usize,
    pub names: BTreeMap<String, Vec<Name>>,
    /// Paths of `use path::*`.
    pub globs: Vec<Mention>,
    /// Identifiers inside macro invocations that stand where items stand: one of them may define the name.
    pub generated: HashSet<String>,
    pub mentions: Vec<Mention>,
    /// `impl` blocks of types.
    pub impls: Vec<Impl>,
}

/// Meaning of a name of a module.
#[derive(Clone)]
pub enum Name {
    Module(usize),
    Item,
    Import(Vec<String>),
}

/// A path as it is written in a source file.
#[derive(Clone)]
pub struct Mention {
    pub path: Vec<String>,
    pub line: usize,
    /// True if it is the name of a macro that is invoked.
    pub invoked: bool,
}

impl Tree {
    /// Reads a crate from its root file on. Modules, items and imports for tests only are left out.
    pub fn read(workspace: &Path, root: &Path) -> Result<Self> {
        let mut tree = Self { files: Vec::new(), modules: Vec::new(), macros: BTreeMap::new() };
        let folder = root.parent().context("a root file has no folder")?;
        tree.file(workspace, root, folder, 0)?;
        Ok(tree)
    }

    /// Reads one file as the next module. Its child modules are searched in `folder`.
    fn file(&mut self, workspace: &Path, path: &Path, folder: &Path, parent: usize) -> Result<usize> {
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let syntax = syn::parse_file(&text).with_context(|| format!("cannot parse {}", path.display()))?;
        let header = text
            .lines()
            .skip_while(|line| !line.starts_with("//!"))
            .map_while(|line| line.strip_prefix("//!"))
            .collect::<Vec<_>>();
        self.files.push(SourceFile {
            path: path.strip_prefix(workspace).unwrap_or(path).to_owned(),
            header: header.join(" ").split_whitespace().collect::<Vec<_>>().join(" "),
        });
        let file = self.files.len() - 1;
        let module = self.add(parent, file);
        if !only_for_tests(&syntax.attrs) {
            self.items(workspace, module, folder, &syntax.items)?;
        }
        Ok(module)
    }

    fn add(&mut self, parent: usize, file: usize) -> usize {
        self.modules.push(Module { parent, file, ..Module::default() });
        self.modules.len() - 1
    }

    fn items(&mut self, workspace: &Path, module: usize, folder: &Path, items: &[Item]) -> Result<()> {
        for item in items.iter().filter(|item| !only_for_tests(of_item(item))) {
            match item {
                Item::Mod(child) => {
                    let index = self.child(workspace, module, folder, child)?;
                    self.name(module, &child.ident, Name::Module(index));
                }
                Item::Macro(ItemMacro { ident: Some(ident), mac, .. }) => {
                    self.macros.insert(ident.to_string(), self.modules[module].file);
                    self.name(module, ident, Name::Item);
                    tokens(mac.tokens.clone(), &mut self.modules[module].mentions);
                }
                Item::Macro(ItemMacro { mac, .. }) => {
                    identifiers(mac.tokens.clone(), &mut self.modules[module].generated);
                    self.mentions(module, item);
                }
                _ => {
                    if let Item::Impl(block) = item {
                        self.modules[module].impls.extend(Impl::read(block));
                    }
                    if let Some(ident) = defined(item) {
                        self.name(module, ident, Name::Item);
                    }
                    self.mentions(module, item);
                }
            }
        }
        Ok(())
    }

    fn child(&mut self, workspace: &Path, parent: usize, folder: &Path, child: &ItemMod) -> Result<usize> {
        let name = child.ident.to_string();
        let below = folder.join(&name);
        if let Some((_, items)) = &child.content {
            let index = self.add(parent, self.modules[parent].file);
            self.items(workspace, index, &below, items)?;
            return Ok(index);
        }
        if let Some(path) = path_attribute(&child.attrs) {
            // Relative to the folder of the file, and its children stand beside it.
            let file = workspace.join(&self.files[self.modules[parent].file].path);
            let path = file.parent().unwrap_or(folder).join(path);
            let folder = path.parent().unwrap_or(folder).to_owned();
            return self.file(workspace, &path, &folder, parent);
        }
        let (file, folder_module) = (folder.join(format!("{name}.rs")), below.join("mod.rs"));
        self.file(workspace, if folder_module.exists() { &folder_module } else { &file }, &below, parent)
    }

    fn name(&mut self, module: usize, ident: &Ident, name: Name) {
        self.modules[module].names.entry(ident.to_string()).or_default().push(name);
    }

    fn mentions(&mut self, module: usize, item: &Item) {
        let mut reader = Reader { module: &mut self.modules[module] };
        reader.visit_item(item);
    }
}

/// Collects imports and paths of one item.
struct Reader<'a> {
    module: &'a mut Module,
}

impl Reader<'_> {
    fn mention(&mut self, path: &syn::Path, invoked: bool) {
        if path.leading_colon.is_none() {
            let line = path.span().start().line;
            let path = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
            self.module.mentions.push(Mention { path, line, invoked });
        }
    }

    fn import(&mut self, prefix: &mut Vec<String>, tree: &UseTree) {
        match tree {
            UseTree::Path(path) => {
                prefix.push(path.ident.to_string());
                self.import(prefix, &path.tree);
                prefix.pop();
            }
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.import(prefix, tree)),
            UseTree::Glob(glob) => {
                let mention =
                    Mention { path: prefix.clone(), line: glob.span().start().line, invoked: false };
                self.module.globs.push(mention);
            }
            UseTree::Name(name) => self.imported(prefix, &name.ident, &name.ident),
            UseTree::Rename(rename) => self.imported(prefix, &rename.ident, &rename.rename),
        }
    }

    fn imported(&mut self, prefix: &[String], ident: &Ident, rename: &Ident) {
        let mut path = prefix.to_vec();
        let mut name = rename.to_string();
        if ident == "self" {
            if rename == "self" {
                name = prefix.last().cloned().unwrap_or_default();
            }
        } else {
            path.push(ident.to_string());
        }
        self.module.names.entry(name).or_default().push(Name::Import(path.clone()));
        self.module.mentions.push(Mention { path, line: ident.span().start().line, invoked: false });
    }
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        if !only_for_tests(of_item(item)) {
            syn::visit::visit_item(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        if !only_for_tests(&function.attrs) {
            syn::visit::visit_impl_item_fn(self, function);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if item.leading_colon.is_none() {
            self.import(&mut Vec::new(), &item.tree);
        }
    }

    /// `pub(in crate::path)` says who may import, and imports nothing.
    fn visit_visibility(&mut self, _: &'ast Visibility) {}

    fn visit_attribute(&mut self, _: &'ast Attribute) {}

    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.mention(path, false);
        syn::visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, mac: &'ast syn::Macro) {
        self.mention(&mac.path, true);
        tokens(mac.tokens.clone(), &mut self.module.mentions);
    }
}

/// Finds paths in the tokens of a macro, which have no syntax yet.
fn tokens(stream: TokenStream, mentions: &mut Vec<Mention>) {
    let mut path: Option<Mention> = None;
    let (mut colons, mut after_dot) = (0, false);
    for token in stream {
        let is_dot = matches!(&token, TokenTree::Punct(punct) if punct.as_char() == '.');
        match token {
            TokenTree::Ident(ident) => match &mut path {
                Some(path) if colons == 2 => path.path.push(ident.to_string()),
                _ => {
                    mentions.extend(path.take());
                    // A field or a method is no path, nor is what follows type arguments.
                    if !after_dot && colons != 2 {
                        let line = ident.span().start().line;
                        path = Some(Mention { path: vec![ident.to_string()], line, invoked: false });
                    }
                }
            },
            TokenTree::Punct(punct) if punct.as_char() == ':' => {
                colons += 1;
                continue;
            }
            TokenTree::Punct(punct) => {
                if let Some(path) = &mut path {
                    path.invoked = punct.as_char() == '!';
                }
                mentions.extend(path.take());
            }
            TokenTree::Group(group) => {
                mentions.extend(path.take());
                tokens(group.stream(), mentions);
            }
            TokenTree::Literal(_) => mentions.extend(path.take()),
        }
        (colons, after_dot) = (0, is_dot);
    }
    mentions.extend(path);
}

fn identifiers(stream: TokenStream, found: &mut HashSet<String>) {
    for token in stream {
        match token {
            TokenTree::Ident(ident) => drop(found.insert(ident.to_string())),
            TokenTree::Group(group) => identifiers(group.stream(), found),
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
}

fn defined(item: &Item) -> Option<&Ident> {
    match item {
        Item::Const(item) => Some(&item.ident),
        Item::Enum(item) => Some(&item.ident),
        Item::Fn(item) => Some(&item.sig.ident),
        Item::Static(item) => Some(&item.ident),
        Item::Struct(item) => Some(&item.ident),
        Item::Trait(item) => Some(&item.ident),
        Item::TraitAlias(item) => Some(&item.ident),
        Item::Type(item) => Some(&item.ident),
        Item::Union(item) => Some(&item.ident),
        _ => None,
    }
}

fn path_attribute(attributes: &[Attribute]) -> Option<String> {
    attributes.iter().find_map(|attribute| match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("path") => match &pair.value {
            syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) => Some(text.value()),
            _ => None,
        },
        _ => None,
    })
}

/// Names that the module mentions without a path before them, or as the head of one.
pub fn heads(module: &Module) -> BTreeSet<(&str, usize)> {
    module.mentions.iter().map(|mention| (mention.path[0].as_str(), mention.line)).collect()
}
