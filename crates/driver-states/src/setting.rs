// SPDX-License-Identifier: MIT OR Apache-2.0

//! The settings of a device that are programmed by commands: what is wanted, and what the device has.
//!
//! A caller that changes a setting changes its value and notes that another one is [wanted](Settings::want). One thread sends commands for one
//! setting at a time, and waits for their answers as long as the device needs. Only the value that is wanted last matters: if it changes
//! meanwhile, the setting is programmed once more. Until then, and if the device refuses, software does what the device does not.

state_table::state_table! {
    /// State of a setting.
    #[repr(u8)]
    pub enum SettingState {
        /// The device has the value that is wanted, or has refused it.
        Settled,
        /// The device does not have the value that is wanted.
        Wanted,
        /// The device has commands for the value that is wanted.
        Pending,
        /// The device has commands for a value, and another is wanted by now.
        Outdated,
    }
    /// Events of a setting.
    pub enum SettingEvent {
        Want: Settled | Wanted => Wanted;
        WantOther: Pending | Outdated => Outdated;
        Begin: Wanted => Pending;
        Answer: Pending => Settled;
        AnswerLate: Outdated => Wanted;
        Lose: Pending | Outdated => Wanted;
    }
}

/// A setting, in the order in which settings are programmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Setting {
    /// The number of queue pairs in use.
    Pairs,
    /// Hashes of received frames, and the queue pairs to which the device steers by them.
    Scaling,
    /// The frames that the device delivers, and the station's address.
    Filter,
    /// The IP versions of which the device coalesces segments.
    Coalescing,
    /// That the addresses were announced as the device has asked.
    Announcement,
    /// How the device coalesces the interrupts of receive queues. Last: a command each for up to 64 queues, and only the processor's load
    /// depends on it.
    Interrupts,
}

impl Setting {
    /// All settings, in order.
    pub const ALL: [Self; 6] =
        [Self::Pairs, Self::Scaling, Self::Filter, Self::Coalescing, Self::Announcement, Self::Interrupts];
    /// Those that a device loses when it is reset.
    pub const LOST_BY_RESET: [Self; 5] =
        [Self::Pairs, Self::Scaling, Self::Filter, Self::Coalescing, Self::Interrupts];
}

/// The states of all settings of a device. After a reset, a device has none of the values that are wanted.
#[derive(Clone, Debug)]
pub struct Settings([SettingState; Setting::ALL.len()]);

impl Settings {
    /// Creates the states of a device from which nothing is wanted yet.
    #[must_use]
    pub const fn new() -> Self {
        Self([SettingState::Settled; Setting::ALL.len()])
    }

    /// Returns the state of a setting.
    #[must_use]
    pub fn state(&self, setting: Setting) -> SettingState {
        self.0.get(setting as usize).copied().unwrap_or(SettingState::Settled)
    }

    /// Applies the first of these events that the state of a setting allows. Returns the state before.
    fn apply(&mut self, setting: Setting, events: [SettingEvent; 2]) -> SettingState {
        let Some(state) = self.0.get_mut(setting as usize) else { return SettingState::Settled };
        let before = *state;
        if let Some(next) = events.into_iter().find_map(|event| before.on(event).ok()) {
            *state = next;
        }
        before
    }

    /// Notes that a value is wanted which the device may not have.
    pub fn want(&mut self, setting: Setting) {
        self.apply(setting, [SettingEvent::Want, SettingEvent::WantOther]);
    }

    /// Begins the first setting that the device does not have as wanted, and returns it; `None` if there is none.
    pub fn begin(&mut self) -> Option<Setting> {
        let wanted = |setting: &Setting| self.state(*setting) == SettingState::Wanted;
        let setting = Setting::ALL.into_iter().find(wanted)?;
        self.apply(setting, [SettingEvent::Begin; 2]);
        Some(setting)
    }

    /// Notes that the device has answered the commands for a setting that was begun. Returns whether it was the value that is wanted.
    pub fn answer(&mut self, setting: Setting) -> bool {
        let before = self.apply(setting, [SettingEvent::Answer, SettingEvent::AnswerLate]);
        before == SettingState::Pending
    }

    /// Notes that the device was stopped before it has answered.
    pub fn lose(&mut self, setting: Setting) {
        self.apply(setting, [SettingEvent::Lose; 2]);
    }

    /// Returns whether the device has each value as wanted, or has refused it. How it coalesces interrupts does not count: no request
    /// depends on that.
    #[must_use]
    pub fn are_settled(&self) -> bool {
        let counted = Setting::ALL.into_iter().filter(|&setting| setting != Setting::Interrupts);
        counted.map(|setting| self.state(setting)).all(|state| state == SettingState::Settled)
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_programmed_once_each_and_in_order() {
        let mut settings = Settings::new();
        assert!(settings.are_settled() && settings.begin().is_none());
        for setting in [Setting::Filter, Setting::Pairs, Setting::Filter] {
            settings.want(setting);
        }
        for expected in [Setting::Pairs, Setting::Filter] {
            assert_eq!(settings.begin(), Some(expected));
            assert!(!settings.are_settled());
            assert!(settings.answer(expected));
        }
        assert!(settings.are_settled() && settings.begin().is_none());
    }

    #[test]
    fn no_request_waits_for_the_coalescing_of_interrupts() {
        let mut settings = Settings::new();
        settings.want(Setting::Interrupts);
        assert!(settings.are_settled());
        settings.want(Setting::Announcement);
        assert!(!settings.are_settled());
        assert_eq!(settings.begin(), Some(Setting::Announcement), "before the command of each queue");
        assert!(settings.answer(Setting::Announcement) && settings.are_settled());
        assert_eq!(settings.begin(), Some(Setting::Interrupts));
    }

    #[test]
    fn a_value_that_changes_while_commands_are_pending_is_programmed_afterwards() {
        let mut settings = Settings::new();
        settings.want(Setting::Filter);
        assert_eq!(settings.begin(), Some(Setting::Filter));
        for _ in 0..3 {
            settings.want(Setting::Filter);
        }
        assert_eq!(settings.state(Setting::Filter), SettingState::Outdated);
        assert_eq!(settings.begin(), None, "one setting at a time");
        assert!(!settings.answer(Setting::Filter), "not what is wanted");
        assert_eq!(settings.begin(), Some(Setting::Filter));
        assert!(settings.answer(Setting::Filter));
        assert!(settings.are_settled());
    }

    #[test]
    fn what_a_stopped_device_has_not_answered_is_wanted_again() {
        for changes in [false, true] {
            let mut settings = Settings::new();
            settings.want(Setting::Coalescing);
            assert_eq!(settings.begin(), Some(Setting::Coalescing));
            if changes {
                settings.want(Setting::Coalescing);
            }
            settings.lose(Setting::Coalescing);
            assert_eq!(settings.begin(), Some(Setting::Coalescing));
        }
    }

    #[test]
    fn an_answer_that_was_not_awaited_changes_nothing() {
        let mut settings = Settings::new();
        assert!(!settings.answer(Setting::Scaling));
        settings.want(Setting::Scaling);
        assert!(!settings.answer(Setting::Scaling));
        assert_eq!(settings.state(Setting::Scaling), SettingState::Wanted);
    }
}
