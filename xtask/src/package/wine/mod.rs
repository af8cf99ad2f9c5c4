// SPDX-License-Identifier: MIT OR Apache-2.0

//! The INF by a parser of others: Wine's setupapi installs it on a root device, and the registry that results is compared with the tables of
//! `inf/`. What Wine returns proves nothing: it reports success of an INF of which it installs no line.
//!
//! `docs/testing.md` lists what Wine 8 does otherwise than Windows; [`adapted`], `expected.rs` and `install.c` make up for it.

mod expected;

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, bail, ensure};
use viordma_inf::{Edition, stamp};

use self::expected::{DRIVERS, Registry};
use super::inf_parser::Inf;
use crate::{image::architecture::Architecture, packages, shell};

const SOURCE: &str = include_str!("install.c");

const SERVICE: &str = r"HKLM\System\CurrentControlSet\Services\viordma";
const EVENT_LOG: &str = r"HKLM\System\CurrentControlSet\Services\EventLog\System\viordma";
const CLASS: &str = r"HKLM\System\CurrentControlSet\Control\Class\{4d36e972-e325-11ce-bfc1-08002be10318}";
const DEVICES: &str = r"HKLM\System\CurrentControlSet\Enum\Root\VIORDMA";

/// Values that Wine adds to the key of a service.
const OF_WINE: [&str; 2] = ["ObjectName", "PreshutdownTimeout"];

/// Time for a program of Wine. It needs a second, and the first one, which makes the installation, ten.
const SECONDS: &str = "120";

/// A device that the driver is not for: virtio's block device.
const OTHER_DEVICE: &str = r"PCI\VEN_1AF4&DEV_1042";

/// Returns whether Wine is there, or could be installed.
pub fn is_available() -> bool {
    match packages::require(&packages::WINE) {
        Ok(()) => true,
        Err(error) => {
            eprintln!("{error:#}");
            false
        }
    }
}

/// Installs the INF of each edition and architecture. Returns the number of values that were compared.
///
/// # Errors
/// An installation leaves another registry than the tables say, or one with a fault does not.
pub fn check() -> Result<usize> {
    let target = shell::root().join("target");
    let folder = tempfile::Builder::new().prefix("wine-").tempdir_in(target).context("no folder for Wine")?;
    let machine = Machine::start(folder.path())?;
    let mut compared = 0;
    for (edition, architecture) in [
        (Edition::Standard, Architecture::X64),
        (Edition::Strict, Architecture::X64),
        (Edition::Standard, Architecture::Arm64),
    ] {
        let text = stamp::stamped(edition, architecture.inf(), "11/27/2026", "0.1.0.0")
            .map_err(anyhow::Error::msg)?;
        let text = adapted(&text, architecture)?;
        let Comparison { values, differences } = machine.installed(edition, &text)?;
        compared += values;
        let name = format!("{} for {}", edition.name(), architecture.name());
        ensure!(
            differences.is_empty(),
            "Wine installs the INF of {name} otherwise in {} places, such as: {}",
            differences.len(),
            differences[..differences.len().min(8)].join("; ")
        );
        machine.uninstall()?;
    }
    machine.check_faults()?;
    Ok(compared)
}

/// Returns the text of an INF as Wine 8 understands it: without the version of Windows in the names of models sections.
fn adapted(text: &str, architecture: Architecture) -> Result<String> {
    let decoration = format!("NT{}.10.0...20348", architecture.inf());
    ensure!(
        text.matches(&decoration).count() == 2,
        "{decoration} stands in another number of places than two"
    );
    Ok(text.replace(&decoration, "NTamd64"))
}

/// A Wine installation of its own.
struct Machine<'a> {
    folder: &'a Path,
}

impl Drop for Machine<'_> {
    fn drop(&mut self) {
        // Its processes would otherwise use the folder while it is removed.
        let _ = self.stop();
    }
}

impl<'a> Machine<'a> {
    fn start(folder: &'a Path) -> Result<Self> {
        let machine = Self { folder };
        fs::write(folder.join("install.c"), SOURCE)?;
        let mut compiler = Command::new("/usr/bin/x86_64-w64-mingw32-gcc");
        compiler.current_dir(folder).args([
            "-Wall",
            "-Werror",
            "-municode",
            "install.c",
            "-o",
            "install.exe",
        ]);
        shell::run(compiler.args(["-lsetupapi", "-lnewdev"]))?;
        machine.wine(&["wineboot", "--init"])?;
        machine.stop()?;
        fs::copy(machine.hive(), machine.first_hive()).context("Wine has written no registry")?;
        Ok(machine)
    }

    /// Ends all processes of the installation. The last one writes the registry.
    fn stop(&self) -> Result<()> {
        let mut server = Command::new("/usr/bin/wineserver");
        let status = server.env("WINEPREFIX", self.prefix()).args(["-k", "-w"]).output()?.status;
        ensure!(status.success(), "wineserver cannot be ended: {status}");
        Ok(())
    }

    /// Returns the path of the part of the registry that INFs of drivers write.
    fn hive(&self) -> std::path::PathBuf {
        self.prefix().join("system.reg")
    }

    /// Returns the path of a copy of [`Machine::hive`] before any installation.
    fn first_hive(&self) -> std::path::PathBuf {
        self.folder.join("first.reg")
    }

    fn prefix(&self) -> std::path::PathBuf {
        self.folder.join("prefix")
    }

    /// Runs a program, and returns what it prints. A pipe would be held open by the services that Wine starts.
    fn wine(&self, arguments: &[&str]) -> Result<String> {
        let path = self.folder.join("output");
        let file = fs::File::create(&path)?;
        let mut wine = Command::new("timeout");
        wine.arg(SECONDS).arg("/usr/bin/wine").args(arguments).current_dir(self.folder);
        wine.env("WINEPREFIX", self.prefix()).env("WINEARCH", "win64").env("WINEDEBUG", "-all");
        // No window, no download of parts that are not used here, no menu entries in the user's home.
        wine.env_remove("DISPLAY").env("WINEDLLOVERRIDES", "mscoree,mshtml,winemenubuilder.exe=");
        let status = wine.stdin(Stdio::null()).stdout(file).stderr(Stdio::null()).status()?;
        // The exit code of `timeout`.
        ensure!(status.code() != Some(124), "wine {arguments:?} has not ended within {SECONDS} s");
        Ok(String::from_utf8_lossy(&fs::read(&path)?).into_owned())
    }

    /// Installs an INF for a device of each of its hardware ids and for one of another, and compares the registry with the tables.
    fn installed(&self, edition: Edition, text: &str) -> Result<Comparison> {
        let driver = edition.name();
        fs::write(self.folder.join("viordma.inf"), text)?;
        let image = format!("{driver}.sys");
        fs::write(self.folder.join(&image), &image)?;
        // Wine has the whole file system on drive Z. A path without a folder would be one of C:\windows\inf.
        let path = format!("Z:{}", self.folder.join("viordma.inf").display()).replace('/', r"\");
        let ids = Inf::parse(text).hardware_ids();
        for (number, id) in ids.iter().map(String::as_str).chain([OTHER_DEVICE]).enumerate() {
            let instance = format!(r"Root\viordma\{number:04}");
            self.wine(&["install.exe", &path, id, &instance])?;
        }
        let mut comparison = Comparison::default();
        let mut service = self.registry(SERVICE)?;
        service.retain(|(key, name), _| !key.is_empty() || !OF_WINE.contains(&&**name));
        comparison.add("service", &service, &expected::service(driver));
        comparison.add("event log", &self.registry(EVENT_LOG)?, &expected::event_log(driver));
        let devices = self.registry(DEVICES)?;
        let drivers = self.registry(CLASS)?;
        for (number, id) in ids.iter().enumerate() {
            let own = below(&devices, &format!("{number:04}"));
            let value = |name: &str| own.get(&(String::new(), name.to_owned())).map_or("", |value| &value.1);
            comparison.demand(value("Service") == "viordma", format!("{id}: the device has no service"));
            comparison.add(id, &below(&own, "Device Parameters"), &expected::device_parameters());
            let key = value("Driver").rsplit('\\').next().unwrap_or_default();
            comparison.add(id, &below(&drivers, &format!(r"{key}\Ndi")), &expected::ndi(edition));
        }
        let other = below(&devices, &format!("{:04}", ids.len()));
        let has_service = other.contains_key(&(String::new(), "Service".to_owned()));
        comparison.demand(
            !other.is_empty() && !has_service,
            format!("{OTHER_DEVICE}: no device, or with a service"),
        );
        let copy = fs::read(self.file(&image)).unwrap_or_default();
        comparison.demand(copy == image.as_bytes(), format!("{image} was not copied"));
        Ok(comparison)
    }

    /// Returns the path of a file of [`DRIVERS`].
    fn file(&self, name: &str) -> std::path::PathBuf {
        let path = DRIVERS.trim_start_matches(r"C:\").replace('\\', "/");
        self.prefix().join("drive_c").join(path).join(name)
    }

    /// Removes what an installation left. The keys are not deleted: Wine's service manager may write those of a service after that.
    fn uninstall(&self) -> Result<()> {
        self.stop()?;
        fs::copy(self.first_hive(), self.hive()).context("the registry cannot be restored")?;
        let _ = fs::remove_dir_all(self.file(""));
        for key in [SERVICE, EVENT_LOG, DEVICES] {
            ensure!(self.registry(key)?.is_empty(), "{key} was there before the installation");
        }
        Ok(())
    }

    /// Installs INFs with faults, each of which the comparison has to notice.
    fn check_faults(&self) -> Result<()> {
        let text = stamp::stamped(Edition::Standard, "amd64", "11/27/2026", "0.1.0.0")
            .map_err(anyhow::Error::msg)?;
        let faults = [
            (r#";%13%\viordma.sys""#, r#"""#, "event log: EventMessageFile"),
            (
                r"HKR, Ndi\params\*JumboPacket, Max,",
                r"HKR, Ndi\params\*JumboPacket, Mux,",
                r"params\*JumboPacket\Max",
            ),
            ("MessageNumberLimit, 0x00010001,", "MessageNumberLimit, 0x00000000,", "MessageNumberLimit"),
            ("[viordma.ndi.HW]", "[viordma.ndi.Hardware]", "RemappingSupported"),
            ("StartType      = 3", "StartType      = 2", "service: Start"),
            (
                "%DeviceDesc% = viordma.ndi, PCI\\VEN_1AF4&DEV_1041\n",
                "%DeviceDesc% = viordma.nd, PCI\\VEN_1AF4&DEV_1041\n",
                r"PCI\VEN_1AF4&DEV_1041",
            ),
        ];
        for (from, to, noticed) in faults {
            ensure!(text.contains(from), "the INF has no {from:?}");
            let text = adapted(&text.replacen(from, to, 1), Architecture::X64)?;
            let Comparison { differences, .. } = self.installed(Edition::Standard, &text)?;
            ensure!(
                differences.iter().any(|difference| difference.contains(noticed)),
                "{to:?} in place of {from:?} is not noticed: {differences:?}"
            );
            self.uninstall()?;
        }
        Ok(())
    }

    /// Returns all values of a key and of those below it. A key that does not exist has none.
    fn registry(&self, key: &str) -> Result<Registry> {
        parse(key, &self.wine(&["reg", "query", key, "/s"])?)
    }
}

/// How a registry differs from the tables.
#[derive(Default)]
struct Comparison {
    /// Number of values that were compared.
    values: usize,
    differences: Vec<String>,
}

impl Comparison {
    fn add(&mut self, what: &str, read: &Registry, expected: &Registry) {
        self.values += expected.len();
        self.differences.extend(difference(read, expected).into_iter().map(|text| format!("{what}: {text}")));
    }

    fn demand(&mut self, is_right: bool, otherwise: String) {
        self.values += 1;
        if !is_right {
            self.differences.push(otherwise);
        }
    }
}

/// Parses the output of `reg query KEY /s`.
fn parse(root: &str, text: &str) -> Result<Registry> {
    if text.starts_with("reg: Unable to find the specified registry key") {
        return Ok(Registry::new());
    }
    let root = root.trim_start_matches("HKLM").to_lowercase();
    let (mut values, mut key) = (Registry::new(), String::new());
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        if let Some(path) = line.strip_prefix("HKEY_LOCAL_MACHINE") {
            ensure!(path.to_lowercase().starts_with(&root), "{path} is not below {root}");
            path[root.len()..].trim_start_matches('\\').clone_into(&mut key);
            continue;
        }
        let mut fields = line.strip_prefix("    ").unwrap_or(line).splitn(3, "    ");
        let [Some(name), Some(kind), data] = [(); 3].map(|()| fields.next()) else {
            bail!("a line of reg.exe has no type: {line}")
        };
        values.insert(
            (key.clone(), name.to_owned()),
            (kind.to_owned(), data.unwrap_or_default().trim_end().to_owned()),
        );
    }
    Ok(values)
}

/// Returns the values of a key and of those below it.
fn below(registry: &Registry, key: &str) -> Registry {
    let relative = |path: &str| {
        let rest = path.get(key.len()..).filter(|_| path[..key.len()].eq_ignore_ascii_case(key))?;
        if rest.is_empty() { Some(String::new()) } else { rest.strip_prefix('\\').map(str::to_owned) }
    };
    registry
        .iter()
        .filter_map(|((path, name), value)| Some(((relative(path)?, name.clone()), value.clone())))
        .collect::<BTreeMap<_, _>>()
}

/// Describes the values that are missing, that should not be there, and that differ.
fn difference(read: &Registry, expected: &Registry) -> Vec<String> {
    let name = |(key, name): &(String, String)| {
        if key.is_empty() { name.clone() } else { format!(r"{key}\{name}") }
    };
    let missing = expected
        .iter()
        .filter(|(key, _)| !read.contains_key(key))
        .map(|(key, _)| format!("{} is missing", name(key)));
    let other = read.iter().filter_map(|(key, value)| match expected.get(key) {
        None => Some(format!("{} should not be there", name(key))),
        Some(right) if right != value => {
            Some(format!("{} is {} {}, not {} {}", name(key), value.0, value.1, right.0, right.1))
        }
        Some(_) => None,
    });
    missing.chain(other).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "\r\nHKEY_LOCAL_MACHINE\\System\\A\r\n    Name    REG_SZ    two words\r\n    Empty    REG_SZ    \r\n\r\n\
        HKEY_LOCAL_MACHINE\\System\\A\\b\\c\r\n    Limit    REG_DWORD    0x11\r\n\r\nHKEY_LOCAL_MACHINE\\System\\A\\bc\r\n";

    #[test]
    fn output_of_reg_exe_is_read_with_its_keys() {
        let registry = parse(r"HKLM\system\A", OUTPUT).unwrap();
        let value = |key: &str, name: &str| registry[&(key.to_owned(), name.to_owned())].1.as_str();
        assert_eq!(
            (value("", "Name"), value("", "Empty"), value(r"b\c", "Limit")),
            ("two words", "", "0x11")
        );
        assert_eq!(below(&registry, "B").keys().collect::<Vec<_>>(), [&("c".to_owned(), "Limit".to_owned())]);
        assert!(below(&registry, "x").is_empty());
    }

    #[test]
    fn a_key_that_does_not_exist_has_no_values_and_other_messages_are_errors() {
        let text = "reg: Unable to find the specified registry key\r\n";
        assert!(parse(r"HKLM\System\A", text).unwrap().is_empty());
        assert!(parse(r"HKLM\System\A", "reg: Invalid syntax\r\n").is_err());
    }

    #[test]
    fn missing_additional_and_other_values_are_named() {
        let registry = parse(r"HKLM\System\A", OUTPUT).unwrap();
        assert_eq!(difference(&registry, &registry), [""; 0]);
        let mut other = registry.clone();
        other.remove(&(String::new(), "Empty".to_owned()));
        other.insert((r"b\c".to_owned(), "Limit".to_owned()), ("REG_DWORD".to_owned(), "0x12".to_owned()));
        assert_eq!(
            difference(&registry, &other),
            ["Empty should not be there", r"b\c\Limit is REG_DWORD 0x11, not REG_DWORD 0x12"]
        );
        assert_eq!(difference(&other, &registry)[0], "Empty is missing");
    }
}
