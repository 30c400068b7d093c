//! The write-ahead log through its public face.

mod behaviours;
mod crash;
mod damage;
mod failures;
mod support;
