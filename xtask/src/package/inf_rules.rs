// SPDX-License-Identifier: MIT OR Apache-2.0

//! Rules for the INF of a driver package as a table. On Windows, InfVerif checks more; no program for Linux checks any.
//! (windows §1.1, §1.6)

use super::inf_parser::Inf;
use crate::image::architecture::Architecture;

/// An INF, and the driver and the architecture that it is for.
struct Subject<'a> {
    inf: Inf,
    text: &'a str,
    driver: &'a str,
    architecture: Architecture,
}

/// A rule: the number that InfVerif has for it, or "-", a sentence, and what breaks it.
struct Rule {
    number: &'static str,
    text: &'static str,
    broken: fn(&Subject) -> Vec<String>,
}

const INSTALL: &str = "viordma.ndi";

const RULES: [Rule; 17] = [
    Rule {
        number: "-",
        text: "the file is ASCII",
        broken: |of| found(!of.text.is_ascii(), "other characters"),
    },
    Rule {
        number: "-",
        text: "one models section, for this architecture from build 20348 on",
        broken: decoration,
    },
    Rule { number: "-", text: "DriverVer has a date and four numbers", broken: driver_version },
    Rule {
        number: "-",
        text: "the catalog of the driver is named",
        broken: |of| {
            let catalog = of.inf.value("Version", "CatalogFile");
            found(catalog != format!("{}.cat", of.driver), catalog)
        },
    },
    Rule {
        number: "1324",
        text: "PnpLockdown = 1",
        broken: |of| found(of.inf.value("Version", "PnpLockdown") != "1", "it is not set"),
    },
    Rule { number: "-", text: "the class is Net", broken: class },
    Rule {
        number: "1303",
        text: "no co-installers",
        broken: |of| sections(of, &["coinstallers", "classinstall32", "controlflags", "logconfigoverride"]),
    },
    Rule {
        number: "-",
        text: "directives of a universal INF only",
        broken: |of| {
            directives(
                of,
                &[
                    "DelReg",
                    "DelFiles",
                    "RenFiles",
                    "BitReg",
                    "UpdateInis",
                    "DelService",
                    "RegisterDlls",
                    "CopyINF",
                ],
            )
        },
    },
    Rule {
        number: "1304",
        text: "registry values are relative: HKR",
        broken: |of| registry(of, |fields| fields[0] != "HKR"),
    },
    Rule { number: "1322", text: "files stay in the driver store: DIRID 13", broken: destinations },
    Rule {
        number: "1323",
        text: "values of the service are below Parameters",
        broken: |of| {
            let sections = of.inf.fields("viordma.Service", "AddReg").to_vec();
            entries(of, &sections)
                .filter(|fields| !fields[1].starts_with("Parameters"))
                .map(|f| f.join(","))
                .collect()
        },
    },
    Rule { number: "1330", text: "a file is copied once", broken: copies },
    Rule { number: "1331", text: "no registry value is set twice", broken: twice },
    Rule { number: "-", text: "one function driver service, started on demand", broken: service },
    Rule { number: "-", text: "each referenced section exists", broken: missing },
    Rule { number: "-", text: "no string is left, or is in no use", broken: strings },
    Rule { number: "-", text: "NDIS keywords of the install section", broken: ndis },
];

/// Returns the rules that an INF breaks, with what breaks them.
pub fn faults(text: &str, driver: &str, architecture: Architecture) -> Vec<String> {
    let subject = Subject { inf: Inf::parse(text), text, driver, architecture };
    RULES
        .iter()
        .flat_map(|rule| {
            let broken = (rule.broken)(&subject);
            broken.into_iter().map(move |what| format!("{} ({}): {what}", rule.text, rule.number))
        })
        .collect()
}

fn found(is_broken: bool, what: &str) -> Vec<String> {
    is_broken.then(|| what.to_owned()).into_iter().collect()
}

fn decoration(of: &Subject) -> Vec<String> {
    let expected = format!("Viordma.NT{}.10.0...20348", of.architecture.inf());
    let models = of.inf.models();
    let mut broken = found(models != [expected], &models.join(", "));
    broken.extend(found(of.inf.hardware_ids().is_empty(), "no hardware ids"));
    broken
}

fn driver_version(of: &Subject) -> Vec<String> {
    let fields = of.inf.fields("Version", "DriverVer");
    let numbers = |text: &str, separator: char, count: usize, limit: u32| {
        let parts: Vec<_> = text.split(separator).map(str::parse::<u32>).collect();
        parts.len() == count && parts.iter().all(|part| part.as_ref().is_ok_and(|part| *part <= limit))
    };
    let is_right =
        matches!(fields, [date, version] if numbers(date, '/', 3, 9999) && numbers(version, '.', 4, 65535));
    found(!is_right, &fields.join(","))
}

fn class(of: &Subject) -> Vec<String> {
    let [class, guid] = ["Class", "ClassGuid"].map(|key| of.inf.value("Version", key));
    let is_net = class == "Net" && guid.eq_ignore_ascii_case("{4d36e972-e325-11ce-bfc1-08002be10318}");
    found(!is_net || of.inf.value("Version", "Signature") != "$WINDOWS NT$", class)
}

fn sections(of: &Subject, refused: &[&str]) -> Vec<String> {
    let is_refused = |name: &&String| refused.iter().any(|part| name.contains(part));
    of.inf.0.keys().filter(is_refused).cloned().collect()
}

fn directives(of: &Subject, refused: &[&str]) -> Vec<String> {
    let keys = of.inf.0.values().flatten().filter_map(|entry| entry.key.as_deref());
    keys.filter(|key| refused.iter().any(|other| key.eq_ignore_ascii_case(other)))
        .map(str::to_owned)
        .collect()
}

/// Returns the registry values of sections: root, subkey, name, flags, value.
fn entries<'a>(of: &'a Subject, sections: &'a [String]) -> impl Iterator<Item = &'a [String]> {
    let entries = sections.iter().flat_map(|section| of.inf.section(section));
    entries.map(|entry| entry.fields.as_slice()).filter(|fields| fields.len() >= 4)
}

/// Names of all sections of registry values.
fn registry_sections(of: &Subject) -> Vec<String> {
    let entries = of.inf.0.values().flatten();
    let added = entries.filter(|entry| entry.key.as_deref() == Some("AddReg"));
    added.flat_map(|entry| entry.fields.clone()).collect()
}

fn registry(of: &Subject, is_broken: fn(&[String]) -> bool) -> Vec<String> {
    let sections = registry_sections(of);
    entries(of, &sections).filter(|fields| is_broken(fields)).map(|fields| fields.join(",")).collect()
}

fn destinations(of: &Subject) -> Vec<String> {
    let entries = of.inf.section("DestinationDirs");
    let mut broken: Vec<String> = entries
        .iter()
        .filter(|entry| entry.fields.first().is_none_or(|directory| directory != "13"))
        .filter_map(|entry| entry.key.clone())
        .collect();
    let binary = of.inf.value("viordma.Service", "ServiceBinary");
    broken.extend(found(binary != format!(r"%13%\{}.sys", of.driver), binary));
    broken
}

fn copies(of: &Subject) -> Vec<String> {
    let copied: Vec<&str> = of
        .inf
        .fields(INSTALL, "CopyFiles")
        .iter()
        .flat_map(|section| of.inf.section(section))
        .filter_map(|entry| entry.fields.first().map(String::as_str))
        .collect();
    let listed = of.inf.section("SourceDisksFiles").iter().filter_map(|entry| entry.key.as_deref());
    let image = format!("{}.sys", of.driver);
    let is_right = copied == [image.as_str()] && listed.eq([image.as_str()]);
    found(!is_right, &copied.join(", "))
}

fn twice(of: &Subject) -> Vec<String> {
    let mut broken = Vec::new();
    for install in [INSTALL, "viordma.ndi.HW", "viordma.Service"] {
        let sections = of.inf.fields(install, "AddReg").to_vec();
        let mut names: Vec<String> =
            entries(of, &sections).map(|fields| fields[1..3].join("\\").to_lowercase()).collect();
        names.sort();
        broken.extend(names.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0].clone()));
    }
    broken
}

fn service(of: &Subject) -> Vec<String> {
    let services = of.inf.section("viordma.ndi.Services");
    let fields = services.first().map(|entry| entry.fields.clone()).unwrap_or_default();
    let number = |key: &str| of.inf.value("viordma.Service", key);
    let name = of.inf.section("viordma.Ndi.Reg").iter().find(|entry| {
        entry.fields.get(1).is_some_and(|key| key == "Ndi")
            && entry.fields.get(2).is_some_and(|name| name == "Service")
    });
    let name = name.and_then(|entry| entry.fields.last().cloned()).unwrap_or_default();
    let is_right = services.len() == 1
        && fields.first() == Some(&name)
        && fields.get(1).is_some_and(|flags| flags.eq_ignore_ascii_case("0x00000002"))
        && ["ServiceType", "StartType", "ErrorControl"].map(number) == ["1", "3", "1"];
    found(!is_right, &fields.join(","))
}

fn missing(of: &Subject) -> Vec<String> {
    let references = ["AddReg", "CopyFiles"];
    let entries = of.inf.0.values().flatten();
    let named = entries
        .filter(|entry| entry.key.as_deref().is_some_and(|key| references.contains(&key)))
        .flat_map(|entry| entry.fields.clone());
    let services = of.inf.section("viordma.ndi.Services").iter().flat_map(|entry| entry.fields[2..].to_vec());
    let all = named.chain(services).chain(of.inf.models()).chain(["SourceDisksNames".to_owned()]);
    all.filter(|name| of.inf.section(name).is_empty()).collect()
}

fn strings(of: &Subject) -> Vec<String> {
    let mut broken = Vec::new();
    let fields = of.inf.0.values().flatten().flat_map(|entry| entry.key.iter().chain(&entry.fields));
    for field in fields {
        // Doubled percent signs are literal; 13 is the driver package's directory.
        let rest = field.replace("%%", "").replace("%13%", "");
        broken.extend(found(rest.contains('%'), field));
    }
    for entry in of.inf.section("Strings") {
        let token = format!("%{}%", entry.key.as_deref().unwrap_or_default());
        broken.extend(found(!of.text.contains(&token), &token));
    }
    broken
}

fn ndis(of: &Subject) -> Vec<String> {
    let expected = [
        ("Characteristics", "0x84"),
        ("BusType", "5"),
        ("*IfType", "6"),
        ("*MediaType", "0"),
        ("*PhysicalMediaType", "14"),
    ];
    expected
        .into_iter()
        .filter(|(key, value)| of.inf.value(INSTALL, key) != *value)
        .map(|(key, _)| key.to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use viordma_inf::{Edition, stamp};

    use super::*;

    fn stamped(edition: Edition, architecture: Architecture) -> String {
        stamp::stamped(edition, architecture.inf(), "11/27/2026", "0.1.0.0").unwrap()
    }

    #[test]
    fn the_inf_of_each_edition_keeps_the_rules_on_both_architectures() {
        for architecture in [Architecture::X64, Architecture::Arm64] {
            for (edition, driver) in [(Edition::Standard, "viordma"), (Edition::Strict, "viordma-strict")] {
                assert_eq!(faults(&stamped(edition, architecture), driver, architecture), [""; 0]);
            }
        }
    }

    #[test]
    fn each_rule_is_broken_by_a_change_and_named() {
        let text = stamped(Edition::Standard, Architecture::X64);
        let changes = [
            ("the file is ASCII", "installation disk", "installation d\u{ef}sk"),
            ("one models section", "[Viordma.NTamd64.10.0...20348]", "[Viordma.NTamd64.10.0...17763]"),
            ("DriverVer has", ",0.1.0.0", ",0.1.0"),
            ("the catalog", "CatalogFile = viordma.cat", "CatalogFile = other.cat"),
            ("PnpLockdown", "PnpLockdown = 1", "PnpLockdown = 0"),
            ("the class is Net", "= Net\n", "= System\n"),
            ("no co-installers", "[SourceDisksNames]", "[viordma.ndi.CoInstallers]\n[SourceDisksNames]"),
            (
                "directives of a universal",
                "CopyFiles          =",
                "DelReg = viordma.Ndi.Reg\nCopyFiles          =",
            ),
            ("registry values are relative", "HKR,, TypesSupported", "HKLM,, TypesSupported"),
            ("DIRID 13", "DefaultDestDir    = 13", "DefaultDestDir    = 12"),
            ("below Parameters", "HKR, Parameters, DmaRemapping", "HKR, Other, DmaRemapping"),
            (
                "a file is copied once",
                "[viordma.CopyFiles]\nviordma.sys",
                "[viordma.CopyFiles]\nviordma.sys\nviordma.sys",
            ),
            ("is set twice", "LowerRange, 0, \"ethernet\"", "UpperRange, 0, \"ethernet\""),
            (
                "one function driver service",
                "AddService = viordma, 0x00000002",
                "AddService = viordma, 0x00000000",
            ),
            ("each referenced section", "[viordma.CopyFiles]", "[viordma.OtherFiles]"),
            ("no string is left", "%ServiceName%", "%OtherName%"),
            ("NDIS keywords", "*IfType            = 6", "*IfType            = 7"),
        ];
        assert_eq!(changes.len(), RULES.len());
        for (rule, from, to) in changes {
            assert!(text.contains(from), "{from}");
            let faults = faults(&text.replacen(from, to, 1), "viordma", Architecture::X64);
            assert!(faults.iter().any(|fault| fault.contains(rule)), "{rule}: {faults:?}");
        }
    }
}
