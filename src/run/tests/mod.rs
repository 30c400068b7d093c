//! Behaviour of runs through their whole face.

mod damage;
mod merging;
mod round_trip;
mod support;
mod worked_example;
