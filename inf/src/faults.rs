// SPDX-License-Identifier: MIT OR Apache-2.0

//! Faults of the two tables. The driver's build script fails if there is one.

use std::collections::BTreeSet;

use crate::{
    events::{MESSAGES, Message},
    keywords::{MAX_NAME, PROPERTIES, Property, Values},
};

/// Checks both tables.
///
/// # Errors
/// A sentence for each fault, with the name of the row.
pub fn check() -> Result<(), String> {
    let mut faults = of_properties(PROPERTIES);
    faults.extend(of_messages(MESSAGES));
    if faults.is_empty() { Ok(()) } else { Err(faults.join("; ")) }
}

/// Returns the faults of a table of properties.
#[must_use]
pub fn of_properties(properties: &[Property]) -> Vec<String> {
    let mut faults = Vec::new();
    let mut names = BTreeSet::new();
    for property in properties {
        let name = property.name;
        let mut fault = |text: &str| faults.push(format!("keyword {name}: {text}"));
        if name.is_empty() {
            fault("a row without a name");
        }
        // Windows does not tell upper from lower case.
        if !names.insert(name.to_lowercase()) {
            fault("the name occurs twice");
        }
        if name.len() > MAX_NAME || !name.is_ascii() {
            fault("the driver cannot read the name");
        }
        if !property.keyword(0).allows(property.default) {
            fault("the default is not allowed");
        }
        if property.label.is_empty() || property.text.is_empty() {
            fault("a text is missing");
        }
        match property.values {
            Values::OneOf([]) => fault("no value is allowed"),
            Values::OneOf(choices) => {
                if choices.iter().any(|choice| choice.text.is_empty()) {
                    fault("the text of a value is missing");
                }
                if !choices.is_sorted_by(|a, b| a.value < b.value) {
                    fault("the values are not in order");
                }
            }
            Values::Range { min, max } if min >= max => fault("the range is empty"),
            Values::Range { .. } => {}
        }
        let mut texts = vec![property.label];
        if let Values::OneOf(choices) = property.values {
            texts.extend(choices.iter().map(|choice| choice.text));
        }
        if texts.iter().any(|text| !text.is_ascii() || text.contains(['"', '%', '\n'])) {
            fault("a text for the INF has a character that it cannot have there");
        }
    }
    faults
}

/// Returns the faults of a table of events.
#[must_use]
pub fn of_messages(messages: &[Message]) -> Vec<String> {
    let mut faults = Vec::new();
    let mut numbers = BTreeSet::new();
    for message in messages {
        let number = message.event.number();
        let mut fault = |text: &str| faults.push(format!("event {number}: {text}"));
        if !numbers.insert(number) {
            fault("the number occurs twice");
        }
        if message.event.id & 0x2FFF_0000 != 0x20DA_0000 {
            fault("the identifier has no customer bit, or another facility");
        }
        if !message.text.starts_with("%2: ") || !message.text.ends_with('.') {
            fault("the text is no sentence that names the adapter");
        }
        if message.action.is_empty() {
            fault("the action is missing");
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keywords::Choice;

    #[test]
    fn the_tables_have_no_fault() {
        assert_eq!(check(), Ok(()));
    }

    #[test]
    fn each_fault_of_a_property_is_reported_with_its_name() {
        let good = PROPERTIES[0];
        let faults = |property: Property| of_properties(&[property]);
        assert!(faults(good).is_empty());
        assert_eq!(of_properties(&[good, good]), [format!("keyword {}: the name occurs twice", good.name)]);
        let named = Property { name: "A", ..good };
        for (property, fault) in [
            (Property { default: 1, ..named }, "the default is not allowed"),
            (
                Property { name: "NameOfMoreCharactersThanTheDriverCanRead0", ..good },
                "the driver cannot read the name",
            ),
            (Property { label: "", ..named }, "a text is missing"),
            (Property { text: "", ..named }, "a text is missing"),
            (
                Property { label: "\"", ..named },
                "a text for the INF has a character that it cannot have there",
            ),
            (
                Property { default: 0, values: Values::OneOf(&[Choice { value: 0, text: "" }]), ..named },
                "the text of a value is missing",
            ),
        ] {
            assert_eq!(faults(property), [format!("keyword {}: {fault}", property.name)]);
        }
        let twice = &[Choice { value: 1, text: "x" }, Choice { value: 1, text: "y" }];
        let property = Property { default: 1, values: Values::OneOf(twice), ..named };
        assert_eq!(faults(property), ["keyword A: the values are not in order"]);
    }

    #[test]
    fn each_fault_of_an_event_is_reported_with_its_number() {
        let good = MESSAGES[0];
        let number = good.event.number();
        assert_eq!(of_messages(&[good, good]), [format!("event {number}: the number occurs twice")]);
        let faults = of_messages(&[Message { action: "", text: "no name", ..good }]);
        assert_eq!(faults.len(), 2);
        assert!(faults.iter().all(|fault| fault.starts_with(&format!("event {number}: "))));
    }
}
