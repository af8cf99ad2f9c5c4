// SPDX-License-Identifier: MIT OR Apache-2.0

//! Variables of scripts: `${name}` in a text.

use std::{collections::BTreeMap, fmt, net::IpAddr};

/// Where a thread runs. With two hosts each role has its own, with one host its own adapter.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Role {
    Server,
    Client,
}

impl Role {
    pub const ALL: [Self; 2] = [Self::Server, Self::Client];

    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Client => "client",
        }
    }

    /// Returns the role of this name.
    ///
    /// # Errors
    /// One sentence.
    pub fn parse(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|role| role.name() == name);
        found.ok_or_else(|| format!("'{name}' is no role; the roles are server and client"))
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Variables that the command defines for each role: they are `server.NAME` and `client.NAME`.
const OF_ROLES: [&str; 3] = ["address", "address6", "interface"];

/// The values of all variables of a script.
#[derive(Clone, Default, Debug)]
pub struct Variables(BTreeMap<String, String>);

impl Variables {
    /// Adds the script's own variables.
    pub fn add(&mut self, variables: &[(String, String)]) {
        self.0.extend(variables.iter().cloned());
    }

    /// Adds what is known of a role: its addresses and the index of its interface.
    pub fn add_role(&mut self, role: Role, v4: IpAddr, v6: IpAddr, interface: u32) {
        let values = [v4.to_string(), v6.to_string(), interface.to_string()];
        for (name, value) in OF_ROLES.into_iter().zip(values) {
            self.0.insert(format!("{role}.{name}"), value);
        }
    }

    /// Replaces `${name}` by values.
    ///
    /// # Errors
    /// One sentence, if a variable is unknown or a brace is not closed.
    pub fn expand(&self, text: &str) -> Result<String, String> {
        let mut expanded = String::new();
        let mut rest = text;
        while let Some((before, behind)) = rest.split_once("${") {
            let (name, after) =
                behind.split_once('}').ok_or_else(|| format!("'{text}' has a ${{ without }}"))?;
            let value = self.0.get(name).ok_or_else(|| format!("there is no variable '{name}'"))?;
            expanded += before;
            expanded += value;
            rest = after;
        }
        Ok(expanded + rest)
    }

    /// Returns values with which a script can be checked before there are hosts.
    #[must_use]
    pub fn example(own: &[(String, String)]) -> Self {
        let mut variables = Self::default();
        for (number, role) in (1..).zip(Role::ALL) {
            let v4 = IpAddr::from([10, 0, 0, number]);
            let v6 = IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, number.into()]);
            variables.add_role(role, v4, v6, u32::from(number));
        }
        variables.add(own);
        variables
    }
}

/// Refuses names of the script's own variables that no text could refer to, or that the command sets.
pub fn check_names(variables: &[(String, String)]) -> Result<(), String> {
    for (name, _) in variables {
        if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
            return Err(format!("set: '{name}' is not made of letters, digits and _"));
        }
    }
    Ok(())
}
