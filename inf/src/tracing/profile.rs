// SPDX-License-Identifier: MIT OR Apache-2.0

//! `Viordma.wprp`: what Windows Performance Recorder records of the driver.

use std::fmt::Write as _;

use super::{Level, keywords};

/// Name of the file.
pub const FILE: &str = "Viordma.wprp";

/// A profile of the file.
struct Profile {
    name: &'static str,
    description: &'static str,
    level: Level,
    keywords: u64,
}

/// The first one is recorded if the command names only the file.
const PROFILES: [Profile; 2] = [
    Profile {
        name: "Viordma",
        description: "viordma: connections, losses, RDMA objects, OID requests, power, device",
        level: Level::Verbose,
        keywords: keywords::ORDINARY,
    },
    Profile {
        name: "ViordmaSequence",
        description: "viordma, with sequence numbers: a reader of the file can forge packets of these connections",
        level: Level::Verbose,
        keywords: keywords::ORDINARY | keywords::SEQUENCE,
    },
];

/// Returns the content of the file.
#[must_use]
pub fn text() -> String {
    let mut text = String::from(
        "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<!-- wpr -start Viordma.wprp -filemode; wpr -stop viordma.etl -->\n\
         <WindowsPerformanceRecorder Version=\"1.0\" Author=\"viordma\">\n  <Profiles>\n",
    );
    for Profile { name, .. } in PROFILES {
        let _ = write!(
            text,
            "    <EventCollector Id=\"{name}.Collector\" Name=\"{name}\">\n      <BufferSize Value=\"256\" />\n      \
             <Buffers Value=\"64\" />\n    </EventCollector>\n"
        );
    }
    let guid = guid();
    for Profile { name, level, keywords, .. } in PROFILES {
        let level = level as u8;
        let _ = write!(
            text,
            "    <EventProvider Id=\"{name}.Provider\" Name=\"{guid}\" Level=\"{level}\" NonPagedMemory=\"true\">\n      \
             <Keywords>\n        <Keyword Value=\"{keywords:#x}\" />\n      </Keywords>\n    </EventProvider>\n"
        );
    }
    for Profile { name, description, .. } in PROFILES {
        let _ = write!(
            text,
            "    <Profile Id=\"{name}.Verbose.File\" Name=\"{name}\" Description=\"{description}\" LoggingMode=\"File\" \
             DetailLevel=\"Verbose\">\n      <Collectors>\n        <EventCollectorId Value=\"{name}.Collector\">\n          \
             <EventProviders>\n            <EventProviderId Value=\"{name}.Provider\" />\n          </EventProviders>\n        \
             </EventCollectorId>\n      </Collectors>\n    </Profile>\n    \
             <Profile Id=\"{name}.Verbose.Memory\" Name=\"{name}\" Description=\"{description}\" Base=\"{name}.Verbose.File\" \
             LoggingMode=\"Memory\" DetailLevel=\"Verbose\" />\n"
        );
    }
    text.push_str("  </Profiles>\n</WindowsPerformanceRecorder>\n");
    text
}

/// Returns the GUID of the provider as text.
#[must_use]
pub fn guid() -> String {
    text_of(super::GUID)
}

/// Returns a GUID as text.
#[must_use]
pub fn text_of(guid: u128) -> String {
    let digits = format!("{guid:032x}");
    let parts = [0..8, 8..12, 12..16, 16..20, 20..32].map(|part| &digits[part]);
    parts.join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_profile_that_says_so_records_sequence_numbers() {
        let text = text();
        assert_eq!(text.matches("d8b48936-22ea-5250-a264-f18567247971").count(), PROFILES.len());
        assert!(
            text.contains("<Keyword Value=\"0x1ff\" />") && text.contains("<Keyword Value=\"0x800001ff\" />")
        );
        for profile in PROFILES {
            let has = profile.keywords & keywords::SEQUENCE != 0;
            assert_eq!(has, profile.description.contains("sequence numbers"), "{}", profile.name);
            // A mask that selects them.
            assert_eq!(keywords::selected(profile.keywords), profile.keywords);
        }
    }

    #[test]
    fn each_element_that_is_opened_is_closed_and_each_reference_has_its_element() {
        let text = text();
        let mut open = Vec::new();
        for tag in text.split('<').skip(1).map(|tag| tag.split_once('>').unwrap().0) {
            match tag.strip_prefix('/') {
                Some(name) => assert_eq!(open.pop(), Some(name)),
                None if tag.starts_with(['?', '!']) || tag.ends_with('/') => {}
                None => open.push(tag.split(' ').next().unwrap()),
            }
        }
        assert!(open.is_empty(), "{open:?}");
        for part in text.split("Id Value=\"").skip(1) {
            let id = part.split('"').next().unwrap();
            assert!(text.contains(&format!(" Id=\"{id}\"")), "{id}");
        }
    }
}
