// SPDX-License-Identifier: MIT OR Apache-2.0

//! A stand-in for WinDbg: runs a JavaScript extension on a dump of a simulated host, with the types of the image's PDB.
//!
//! `host.js` has the objects that WinDbg offers to scripts, as far as ours use them, and refuses everything else. Whether WinDbg behaves as
//! documented is not checked.

mod types;

use std::{cell::RefCell, fs, path::Path, rc::Rc};

use nt_sim::dump::Dump;
use rquickjs::{CatchResultExt as _, Context, Ctx, Function, Object, Runtime};
use serde_json::json;

use self::types::{Type, Types};

const HOST: &str = include_str!("host.js");

/// A debugger with a dump and a loaded script.
pub struct Debugger {
    context: Context,
    output: Rc<RefCell<String>>,
}

/// The system that is debugged.
struct Target {
    dump: Dump,
    types: Types,
    /// The module as a debugger names it, and its base.
    module: (String, usize),
}

impl Debugger {
    /// Opens a dump of a host that has loaded `image`, with the PDB beside that file, and loads a script.
    ///
    /// # Panics
    /// The dump has no such image, there is no PDB, or the script is not valid.
    pub fn new(dump: Dump, image: &Path, script: &Path) -> Self {
        let types = Types::load(&image.with_extension("pdb")).expect("the image has a PDB");
        let file = image.file_name().expect("a file").to_string_lossy().into_owned();
        let loaded = dump.images().iter().find(|(name, _)| *name == file);
        let (_, addresses) = loaded.expect("the image is loaded");
        // As WinDbg names modules.
        let module = (file.trim_end_matches(".sys").replace('-', "_"), addresses.start);
        let target = Rc::new(Target { dump, types, module });
        let output = Rc::new(RefCell::new(String::new()));
        let context = Context::full(&Runtime::new().expect("an engine")).expect("a context");
        let text = fs::read_to_string(script).expect("the script is readable");
        context.with(|ctx| {
            target.declare(&ctx, output.clone()).expect("functions can be declared");
            for source in [HOST, &text] {
                let evaluated = ctx.eval::<(), _>(source).catch(&ctx);
                evaluated.unwrap_or_else(|error| panic!("{}: {error}", script.display()));
            }
        });
        Self { context, output }
    }

    /// Runs a command such as `!qp 0x12`, and returns what it prints.
    ///
    /// # Errors
    /// The message of an exception.
    ///
    /// # Panics
    /// The argument is no number.
    pub fn run(&self, command: &str) -> Result<String, String> {
        let mut words = command.trim_start_matches('!').split_whitespace();
        let name = words.next().unwrap_or_default();
        let number = |word: &str| {
            let number = word
                .strip_prefix("0x")
                .map_or_else(|| word.parse(), |digits| u32::from_str_radix(digits, 16));
            number.expect("a number")
        };
        let argument = words.next().map(number);
        self.output.borrow_mut().clear();
        self.context.with(|ctx| {
            let run: Function<'_> = ctx.globals().get("runCommand").map_err(|error| error.to_string())?;
            run.call::<_, ()>((name, argument)).catch(&ctx).map_err(|error| error.to_string())
        })?;
        Ok(self.output.take())
    }

    /// Returns the value of an expression of the script, as JSON.
    ///
    /// # Errors
    /// The message of an exception.
    pub fn evaluate(&self, expression: &str) -> Result<String, String> {
        let source = format!("JSON.stringify({expression})");
        self.context.with(|ctx| ctx.eval(source).catch(&ctx).map_err(|error| error.to_string()))
    }
}

impl Target {
    /// Declares the functions that `host.js` calls.
    fn declare(self: &Rc<Self>, ctx: &Ctx<'_>, output: Rc<RefCell<String>>) -> rquickjs::Result<()> {
        let globals: Object<'_> = ctx.globals();
        let print = move |text: String| output.borrow_mut().push_str(&text);
        globals.set("nativePrint", Function::new(ctx.clone(), print)?)?;
        let target = self.clone();
        let read = move |address: String, length: usize| target.dump.read(address.parse().ok()?, length);
        globals.set("nativeRead", Function::new(ctx.clone(), read)?)?;
        let target = self.clone();
        let named = move |module: String, name: String| target.of(&module)?.named(&name);
        globals.set("nativeTypeNamed", Function::new(ctx.clone(), named)?)?;
        let target = self.clone();
        let described = move |index: u32| target.types.get(index).map(|found| description(&found));
        globals.set("nativeType", Function::new(ctx.clone(), described)?)?;
        let target = self.clone();
        let symbol = move |module: String, name: String| {
            let (offset, of) = target.of(&module)?.variable(&name)?;
            let address = target.module.1 + offset as usize;
            Some(json!({ "address": address.to_string(), "type": of }).to_string())
        };
        globals.set("nativeSymbol", Function::new(ctx.clone(), symbol)?)
    }

    /// Returns the types of a module; `None` if it is not loaded.
    fn of(&self, module: &str) -> Option<&Types> {
        (module == self.module.0).then_some(&self.types)
    }
}

/// Returns what `host.js` makes a type object of.
fn description(found: &Type) -> String {
    let field = |field: &types::Field| json!({ "name": field.name, "type": field.of, "value": field.value });
    let fields: Vec<_> = found.fields.iter().map(field).collect();
    let Type { name, kind, size, base, .. } = found;
    json!({ "name": name, "kind": kind, "size": size, "base": base, "fields": fields }).to_string()
}
