// SPDX-License-Identifier: MIT OR Apache-2.0

//! Settings and events that a page names: each is in the tables of `inf/`.

use viordma_inf::{events::MESSAGES, keywords::PROPERTIES};

/// Keywords that pages name and the driver does not read by the table: the kind of the adapter, which the INF sets, and those of other
/// drivers and of Windows, of which `docs/nic.md` says why viordma has none.
const OTHERS: [&str; 25] = [
    "*DeviceSleepOnDisconnect",
    "*EEE",
    "*FlowControl",
    "*IfType",
    "*InterruptModeration",
    "*LsoV1IPv4",
    "*MediaType",
    "*NdisDeviceType",
    "*NetworkDirectGlobalFlags",
    "*NumaNodeId",
    "*PMARPOffload",
    "*PMNSOffload",
    "*PhysicalMediaType",
    "*QOS",
    "*ReceiveBuffers",
    "*RssBaseProcGroup",
    "*RssBaseProcNumber",
    "*RssMaxProcGroup",
    "*RssMaxProcNumber",
    "*RssOrVmqPreference",
    "*SpeedDuplex",
    "*TransmitBuffers",
    "*VMQ",
    "*WakeOnMagicPacket",
    "*WakeOnPattern",
];

/// Returns what a page names and the tables do not have.
pub fn unknown(page: &str) -> Vec<String> {
    let settings = settings(page).filter(|name| !is_setting(name)).map(|name| format!("the setting {name}"));
    let is_event = |number: &u32| MESSAGES.iter().any(|message| message.event.number() == *number);
    let events =
        events(page).into_iter().filter(|number| !is_event(number)).map(|number| format!("event {number}"));
    settings.chain(events).collect()
}

fn is_setting(name: &str) -> bool {
    OTHERS.contains(&name) || PROPERTIES.iter().any(|property| property.name == name)
}

/// Names behind a quotation mark that are those of a setting by their form: standardized ones, and the driver's own of RDMA.
fn settings(page: &str) -> impl Iterator<Item = &str> {
    const OWN: [&str; 3] = ["RoCE", "NdkStrict", "NdkCreateCompl"];
    page.split(['`', '\'']).skip(1).filter_map(|quoted| {
        let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '*';
        let name = &quoted[..quoted.find(|letter| !is_part(letter)).unwrap_or(quoted.len())];
        let is_standardized = name
            .strip_prefix('*')
            .is_some_and(|name| name.starts_with(|first: char| first.is_ascii_uppercase()));
        // "RoCEv2" is none.
        let is_own = OWN.iter().filter_map(|own| name.strip_prefix(own)).any(|rest| rest.len() > 2);
        (is_standardized || is_own).then_some(name)
    })
}

/// Numbers after the word "event" or "events", with those that follow them.
fn events(page: &str) -> Vec<u32> {
    let mut numbers = Vec::new();
    let mut is_list = false;
    for word in page.split_whitespace() {
        let plain = word.trim_matches(|letter: char| !letter.is_ascii_alphanumeric());
        match plain.parse() {
            Ok(number) if is_list => numbers.push(number),
            _ => {
                let goes_on = is_list && matches!(plain, "to" | "and" | "or");
                is_list = goes_on || matches!(plain, "event" | "events");
            }
        }
        if word.ends_with(['.', ';', ':', ')']) || word == "events," {
            is_list = false;
        }
    }
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_and_events_that_the_tables_lack_are_unknown() {
        let page = "`*JumboPacket`, `RoCEEarlyPlacement=0`, event 40 and events 60 to 90; 4 events, 7. `*Typo` RoCEv2 `RoCETypo`\n *Raise*\
                    -RegistryKeyword '*Rsss' (event 9) **bold** *Emphasis of words* event 41, 990";
        assert_eq!(
            unknown(page),
            ["the setting *Typo", "the setting RoCETypo", "the setting *Rsss", "event 9", "event 990"]
        );
    }
}
