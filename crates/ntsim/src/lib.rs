//! A simulated NT kernel.
