// SPDX-License-Identifier: MIT OR Apache-2.0

//! The registry that an installation has to leave, from the tables of `inf/`.

use std::collections::BTreeMap;

use viordma_inf::{
    Edition,
    keywords::{NETWORK_ADDRESS, PROPERTIES, Property, QUEUE_PAIRS, Values},
};

/// Values of the registry: type and data by key and name. Keys are relative to the one that was read; its own is empty.
pub type Registry = BTreeMap<(String, String), (String, String)>;

/// Where Wine puts a file of DIRID 13, which it does not know.
pub const DRIVERS: &str = r"C:\windows\system32\unknown";

const TEXT: &str = "REG_SZ";
const NUMBER: &str = "REG_DWORD";

/// The key of the service, without the values that Wine adds.
pub fn service(driver: &str) -> Registry {
    registry([
        ("", "DisplayName", TEXT, "viordma VirtIO Ethernet Adapter driver".to_owned()),
        ("", "ErrorControl", NUMBER, number(1)),
        ("", "Group", TEXT, "NDIS".to_owned()),
        ("", "ImagePath", TEXT, format!(r"{DRIVERS}\{driver}.sys")),
        ("", "Start", NUMBER, number(3)),
        ("", "Type", NUMBER, number(1)),
        ("Parameters", "DmaRemappingCompatible", NUMBER, number(1)),
    ])
}

/// The key of the service in the event log.
pub fn event_log(driver: &str) -> Registry {
    let file = format!(r"%SystemRoot%\System32\netevent.dll;{DRIVERS}\{driver}.sys");
    registry([("", "EventMessageFile", "REG_EXPAND_SZ", file), ("", "TypesSupported", NUMBER, number(7))])
}

/// Values of the hardware key of the device: interrupt messages, their processors, DMA remapping.
pub fn device_parameters() -> Registry {
    const MESSAGES: &str = r"Interrupt Management\MessageSignaledInterruptProperties";
    let Values::Range { max: queue_pairs, .. } = QUEUE_PAIRS.values else { return Registry::new() };
    registry([
        ("DMA Management", "RemappingSupported", NUMBER, number(1)),
        (r"Interrupt Management\Affinity Policy", "DevicePolicy", NUMBER, number(5)),
        (MESSAGES, "MSISupported", NUMBER, number(1)),
        (MESSAGES, "MessageNumberLimit", NUMBER, number(queue_pairs + 1)),
    ])
}

/// The key `Ndi` of the device's driver: interfaces, and all advanced properties with their values.
pub fn ndi(edition: Edition) -> Registry {
    let mut all = registry([
        ("", "Service", TEXT, "viordma".to_owned()),
        ("Interfaces", "LowerRange", TEXT, "ethernet".to_owned()),
        ("Interfaces", "UpperRange", TEXT, "ndis5".to_owned()),
    ]);
    for property in PROPERTIES.iter().filter(|property| property.is_declared(edition)) {
        all.extend(parameter(property));
    }
    let address = format!(r"params\{NETWORK_ADDRESS}");
    all.extend(registry([
        (&*address, "ParamDesc", TEXT, "Network Address".to_owned()),
        (&*address, "Type", TEXT, "edit".to_owned()),
        (&*address, "Optional", TEXT, "1".to_owned()),
    ]));
    all
}

fn parameter(property: &Property) -> Registry {
    let key = format!(r"params\{}", property.name);
    let choices = format!(r"{key}\enum");
    let kind = match property.values {
        Values::OneOf(_) => "enum",
        Values::Range { .. } => property.integer.name(),
    };
    let mut all = registry([
        (&*key, "ParamDesc", TEXT, property.label.to_owned()),
        (&*key, "Type", TEXT, kind.to_owned()),
        (&*key, "Default", TEXT, property.default.to_string()),
        (&*key, "Optional", TEXT, "0".to_owned()),
    ]);
    match property.values {
        Values::Range { min, max } => all.extend(registry([
            (&*key, "Min", TEXT, min.to_string()),
            (&*key, "Max", TEXT, max.to_string()),
            (&*key, "Step", TEXT, "1".to_owned()),
        ])),
        Values::OneOf(list) => all.extend(list.iter().map(|choice| {
            ((choices.clone(), choice.value.to_string()), (TEXT.to_owned(), choice.text.to_owned()))
        })),
    }
    all
}

fn number(value: u32) -> String {
    format!("{value:#x}")
}

fn registry<const LEN: usize>(values: [(&str, &str, &str, String); LEN]) -> Registry {
    let owned = |(key, name, kind, data): (&str, &str, &str, String)| {
        ((key.to_owned(), name.to_owned()), (kind.to_owned(), data))
    };
    values.into_iter().map(owned).collect()
}
