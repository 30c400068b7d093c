//! One suite of behaviours for every engine.
