// SPDX-License-Identifier: MIT OR Apache-2.0

//! The driver package matches the driver: INF and keywords, event messages.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::OnceLock,
};

use viordma_inf::{
    Edition,
    events::{self, MESSAGES},
    inx,
    keywords::{Audience, NETWORK_ADDRESS, PROPERTIES, Property, Values},
};

/// The lines of an INF by section, without comments and surrounding white space.
struct Inf(BTreeMap<&'static str, Vec<&'static str>>);

/// Removes the comment of a line: from a semicolon that is not between quotation marks.
fn without_comment(line: &str) -> &str {
    let mut is_quoted = false;
    let comment = line.find(|character| {
        is_quoted ^= character == '"';
        character == ';' && !is_quoted
    });
    comment.map_or(line, |comment| &line[..comment])
}

impl Inf {
    /// Of the standard edition.
    fn parse() -> Self {
        Self::of(Edition::Standard)
    }

    fn of(edition: Edition) -> Self {
        static TEXTS: [OnceLock<String>; 2] = [const { OnceLock::new() }; 2];
        let mut sections = BTreeMap::<_, Vec<_>>::new();
        let mut section = "";
        for line in TEXTS[edition as usize]
            .get_or_init(|| inx::text(edition).unwrap())
            .lines()
            .map(|line| without_comment(line).trim())
        {
            if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
                section = name;
                assert!(sections.insert(name, Vec::new()).is_none(), "[{name}] twice");
            } else if !line.is_empty() {
                sections.get_mut(section).expect("lines stand in sections").push(line);
            }
        }
        Self(sections)
    }

    fn section(&self, name: &str) -> &[&'static str] {
        self.0.get(name).unwrap_or_else(|| panic!("[{name}] is missing"))
    }

    /// Returns the right side of `key = ...` in a section.
    fn value(&self, section: &str, key: &str) -> Option<&'static str> {
        self.section(section).iter().find_map(|line| {
            let (left, right) = line.split_once('=')?;
            (left.trim() == key).then_some(right.trim())
        })
    }

    /// Returns the registry values that the package writes below the device's key: subkey, name, value.
    fn registry(&self) -> Vec<(&'static str, &'static str, &'static str)> {
        let sections = self.value("viordma.ndi", "AddReg").unwrap().split(',').map(str::trim);
        let lines = sections.flat_map(|section| self.section(section));
        lines
            .map(|line| {
                let fields: Vec<_> = line.splitn(5, ',').map(str::trim).collect();
                let [root, subkey, name, _flags, value] = fields[..] else { panic!("{line}") };
                assert_eq!(root, "HKR", "{line}");
                (subkey, name.trim_matches('"'), value.trim_matches('"'))
            })
            .collect()
    }

    /// Returns the advanced properties: the values below `Ndi\params\<keyword>`.
    fn parameters(&self) -> BTreeMap<&'static str, BTreeMap<String, &'static str>> {
        let mut parameters = BTreeMap::<_, BTreeMap<_, _>>::new();
        for (subkey, name, value) in self.registry() {
            let Some(path) = subkey.strip_prefix(r"Ndi\params\") else { continue };
            let (keyword, name) = match path.split_once('\\') {
                Some((keyword, kind)) => (keyword, format!("{kind}:{name}")),
                None => (path, name.to_owned()),
            };
            assert!(parameters.entry(keyword).or_default().insert(name, value).is_none());
        }
        parameters
    }
}

#[test]
fn inf_offers_exactly_the_keywords_that_the_driver_reads_but_for_those_of_authors() {
    for edition in [Edition::Standard, Edition::Strict] {
        let offered: BTreeSet<_> = Inf::of(edition).parameters().into_keys().collect();
        let is_for_reader =
            |property: &&Property| property.audience == Audience::Administrator || edition == Edition::Strict;
        let read = PROPERTIES.iter().filter(|property| property.edition <= edition).filter(is_for_reader);
        let read: BTreeSet<_> = read.map(|property| property.name).chain([NETWORK_ADDRESS]).collect();
        assert_eq!(offered, read, "{edition:?}");
        assert_eq!(offered.iter().any(|name| name.contains("Strict")), edition == Edition::Strict);
    }
}

//= R-OPEN-34, R-OPEN-35, R-OPEN-36
#[test]
fn each_property_has_the_default_and_the_values_of_the_driver() {
    let parameters = Inf::of(Edition::Strict).parameters();
    for keyword in PROPERTIES.iter().map(|property| property.keyword(0)) {
        let entry = &parameters[keyword.name];
        let number = |name: &str| entry[name].parse::<u32>().unwrap();
        assert_eq!(number("Default"), keyword.default, "{}", keyword.name);
        assert!(keyword.allows(keyword.default), "{}", keyword.name);
        match keyword.values {
            Values::Range { min, max } => {
                // HLK's NICStrictPropertyValidation demands the longer type of this one.
                // Test-NetHLK demands the display types 2 and 4 of these.
                let kind = match keyword.name {
                    "VlanID" => "long",
                    name if name.starts_with('*') => "dword",
                    _ => "int",
                };
                assert_eq!(
                    (entry["Type"], number("Min"), number("Max")),
                    (kind, min, max),
                    "{}",
                    keyword.name
                );
            }
            Values::OneOf(choices) => {
                let listed: Vec<u32> =
                    entry.keys().filter_map(|key| key.strip_prefix("enum:")?.parse().ok()).collect();
                let listed: BTreeSet<_> = listed.into_iter().collect();
                assert_eq!(
                    (entry["Type"], listed),
                    ("enum", choices.iter().map(|choice| choice.value).collect())
                );
            }
        }
    }
    assert_eq!(parameters[NETWORK_ADDRESS]["Type"], "edit");
}

/// Every address that the device gets is one of shared memory of NDIS's: Server 2022 reads the value of the service, Server 2025 and
/// later that of the device. (windows §1.4)
#[test]
fn dma_remapping_is_declared_for_the_driver_and_for_the_device() {
    let inf = Inf::parse();
    let lines = |section: &str| {
        let sections = inf.value(section, "AddReg").expect("AddReg").split(',').map(str::trim);
        let lines: Vec<_> = sections.flat_map(|section| inf.section(section)).copied().collect();
        lines
    };
    assert!(lines("viordma.Service").contains(&"HKR, Parameters, DmaRemappingCompatible, 0x00010001, 1"));
    let device = r#"HKR, "DMA Management", RemappingSupported, 0x00010001, 1"#;
    assert!(lines("viordma.ndi.HW").contains(&device));
}

//= virtio §1
#[test]
fn modern_and_transitional_network_devices_are_bound() {
    let inf = Inf::parse();
    let ids: Vec<_> = inf
        .section("Viordma.NT$ARCH$.10.0...20348")
        .iter()
        .map(|line| {
            let (install, id) = line.split_once('=').unwrap().1.split_once(',').unwrap();
            assert_eq!(install.trim(), "viordma.ndi");
            id.trim()
        })
        .collect();
    // Subsystem and revision as the virtio specification demands them, then any other.
    let expected = [
        r"PCI\VEN_1AF4&DEV_1041&SUBSYS_11001AF4&REV_01",
        r"PCI\VEN_1AF4&DEV_1041",
        r"PCI\VEN_1AF4&DEV_1000&SUBSYS_00011AF4&REV_00",
        r"PCI\VEN_1AF4&DEV_1000",
    ];
    assert_eq!(ids, expected);
}

#[test]
fn each_property_allows_its_values_and_no_neighbor_of_them() {
    for keyword in PROPERTIES.iter().map(|property| property.keyword(0)) {
        let allowed = match keyword.values {
            Values::Range { min, max } => vec![min, min + 1, max - 1, max],
            Values::OneOf(choices) => choices.iter().map(|choice| choice.value).collect(),
        };
        for &value in &allowed {
            assert!(keyword.allows(value), "{} = {value}", keyword.name);
        }
        let (first, last) = (allowed[0], allowed[allowed.len() - 1]);
        for value in [first.checked_sub(1), Some(last + 1), Some(u32::MAX)].into_iter().flatten() {
            assert!(!keyword.allows(value), "{} = {value}", keyword.name);
        }
    }
}

//= R-OPEN-33
#[test]
fn windows_can_find_the_rdma_capability() {
    let registry = Inf::parse().registry();
    assert!(registry.contains(&(r"Ndi\Interfaces", "UpperRange", "ndis5")));
    assert!(registry.contains(&("Ndi", "Service", "viordma")));
}

#[test]
fn each_string_and_section_that_the_inf_refers_to_exists() {
    let inf = Inf::parse();
    let strings: BTreeSet<_> =
        inf.section("Strings").iter().map(|line| line.split('=').next().unwrap().trim()).collect();
    for line in inf.0.iter().filter(|(name, _)| **name != "Strings").flat_map(|(_, lines)| lines) {
        // Doubled percent signs are literal; 13 is the driver package's directory.
        let line = line.replace("%%", "");
        for token in line.split('%').skip(1).step_by(2).filter(|token| *token != "13") {
            assert!(strings.contains(token), "%{token}% is no string");
        }
    }
    for (section, key) in [
        ("viordma.ndi", "AddReg"),
        ("viordma.ndi", "CopyFiles"),
        ("viordma.ndi.HW", "AddReg"),
        ("viordma.EventLog", "AddReg"),
    ] {
        for name in inf.value(section, key).unwrap().split(',') {
            inf.section(name.trim());
        }
    }
}

/// Event Viewer shows the texts of the driver's own events from the image, and those of NDIS from netevent.dll.
#[test]
fn the_image_is_an_event_message_file() {
    let inf = Inf::parse();
    let section = inf.value("viordma.EventLog", "AddReg").unwrap();
    let file =
        r#"HKR,, EventMessageFile, 0x00020000, "%%SystemRoot%%\System32\netevent.dll;%13%\viordma.sys""#;
    assert!(inf.section(section).contains(&file), "{:?}", inf.section(section));
}

#[test]
fn a_semicolon_between_quotation_marks_begins_no_comment() {
    assert_eq!(without_comment(r#"a, "b;c";d;"e""#), r#"a, "b;c""#);
    assert_eq!(without_comment("; all"), "");
    assert_eq!(without_comment("none"), "none");
}

#[test]
fn events_have_unique_numbers_and_texts_that_name_the_adapter() {
    let numbers: BTreeSet<_> = MESSAGES.iter().map(|message| message.event.id).collect();
    assert_eq!(numbers.len(), MESSAGES.len());
    for message in MESSAGES {
        assert!(message.text.starts_with("%2: ") && message.text.ends_with('.'), "{}", message.text);
        let id = message.event.id;
        assert_eq!(id & 0x2FFF_0000, 0x20DA_0000, "customer bit and facility of {id:#x}");
    }
}

#[test]
fn each_mistake_of_a_consumer_has_an_event_that_names_its_rule() {
    for mistake in ndk_provider::Mistake::ALL {
        let message = MESSAGES.iter().find(|message| message.event.number() == mistake.number());
        let message = message.unwrap_or_else(|| panic!("{mistake:?} has no event"));
        assert_eq!(message.event.id, events::CONSUMER_WRONG_IRQL.id - 60 + mistake.number());
        assert!(message.text.contains(mistake.rule()), "{}", message.text);
    }
}

/// `Makefile.toml` and `viordma.inx` agree with `Cargo.toml`: the kit's build names the image and the INF after the package.
#[test]
fn the_package_build_finds_the_driver_and_its_inf() {
    const CARGO: &str = include_str!("../Cargo.toml");
    const MAKEFILE: &str = include_str!("../Makefile.toml");
    const WORKFLOW: &str = include_str!("../.github/workflows/ci.yml");
    const BUILD: &str = include_str!("../build.rs");
    let package = CARGO.split("[package]").nth(1).unwrap();
    let name = package.lines().find_map(|line| line.strip_prefix("name = ")).unwrap().trim_matches('"');
    assert_eq!(name, "viordma");
    assert!(BUILD.contains("inx::write("), "build.rs writes {name}.inx beside Cargo.toml");

    let inf = Inf::parse();
    let image = format!("{name}.sys");
    assert_eq!(inf.value("SourceDisksFiles", &image), Some("1,,"));
    assert_eq!(inf.section("viordma.CopyFiles"), [image.as_str()]);
    assert_eq!(inf.value("viordma.Service", "ServiceBinary"), Some(format!(r"%13%\{image}").as_str()));

    // The makefile changes one task of wdk-build's, for which it sets the systems of the catalog.
    let tasks: Vec<_> = MAKEFILE.lines().filter(|line| line.starts_with("[tasks")).collect();
    assert_eq!(tasks, ["[tasks.inf2cat.env]"]);
    for (target, suffix) in [("aarch64-pc-windows-msvc", "_ARM64"), ("x86_64-pc-windows-msvc", "_X64")] {
        let (_, systems) = MAKEFILE.split_once(&format!("\"{target}\" = \"")).unwrap();
        let (systems, _) = systems.split_once('"').unwrap();
        assert!(
            systems.split(',').all(|system| system.ends_with(suffix)),
            "{systems}: the image is for {target}"
        );
        assert!(WORKFLOW.contains(&format!("systems: {systems}\n")), "cargo wdk build makes another catalog");
    }
}
