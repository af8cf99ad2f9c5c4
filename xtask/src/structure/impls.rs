// SPDX-License-Identifier: MIT OR Apache-2.0

//! The `impl` blocks of a file: the methods that each defines, and those that it calls on `self`.

use proc_macro2::{TokenStream, TokenTree};
use syn::{Expr, ImplItem, ItemImpl, Type, visit::Visit};

use super::attributes::only_for_tests;

/// An `impl` block as it is written.
pub struct Impl {
    /// The path of the type.
    pub path: Vec<String>,
    /// Names of the functions; none if it implements a trait.
    pub methods: Vec<String>,
    /// Names that are called on `self` or as those of `Self`, each with a line.
    pub calls: Vec<(String, usize)>,
}

impl Impl {
    /// Reads a block. `None` if it is not of a type that has a path.
    pub fn read(item: &ItemImpl) -> Option<Self> {
        let Type::Path(path) = item.self_ty.as_ref() else { return None };
        if path.qself.is_some() || path.path.leading_colon.is_some() {
            return None;
        }
        let mut block = Self {
            path: path.path.segments.iter().map(|segment| segment.ident.to_string()).collect(),
            methods: Vec::new(),
            calls: Vec::new(),
        };
        for function in &item.items {
            let ImplItem::Fn(function) = function else { continue };
            if only_for_tests(&function.attrs) {
                continue;
            }
            if item.trait_.is_none() {
                block.methods.push(function.sig.ident.to_string());
            }
            Calls(&mut block.calls).visit_block(&function.block);
        }
        Some(block)
    }
}

/// Collects the calls of a function's body.
struct Calls<'a>(&'a mut Vec<(String, usize)>);

impl<'ast> Visit<'ast> for Calls<'_> {
    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        if matches!(call.receiver.as_ref(), Expr::Path(path) if path.path.is_ident("self")) {
            self.0.push((call.method.to_string(), call.method.span().start().line));
        }
        syn::visit::visit_expr_method_call(self, call);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let mut segments = path.segments.iter();
        if let (Some(first), Some(second)) = (segments.next(), segments.next())
            && first.ident == "Self"
        {
            self.0.push((second.ident.to_string(), second.ident.span().start().line));
        }
        syn::visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, invocation: &'ast syn::Macro) {
        in_tokens(invocation.tokens.clone(), self.0);
    }
}

/// Collects `self.name(` and `Self::name` of a macro's arguments.
fn in_tokens(stream: TokenStream, calls: &mut Vec<(String, usize)>) {
    let tokens: Vec<TokenTree> = stream.into_iter().collect();
    let text = |at: usize| tokens.get(at).map(ToString::to_string).unwrap_or_default();
    for (at, token) in tokens.iter().enumerate() {
        if let TokenTree::Group(group) = token {
            in_tokens(group.stream(), calls);
        }
        let name = match text(at).as_str() {
            "self" if text(at + 1) == "." && text(at + 3).starts_with('(') => at + 2,
            "Self" if text(at + 1) == ":" && text(at + 2) == ":" => at + 3,
            _ => continue,
        };
        if let Some(TokenTree::Ident(name)) = tokens.get(name) {
            calls.push((name.to_string(), name.span().start().line));
        }
    }
}
