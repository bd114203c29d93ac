//! The script against the pure algorithms, and its protocol on its own.

mod clock_steps;
mod differential;
mod give_back;
mod naive;
mod protocol;
mod side_by_side;
mod time_to_live;
