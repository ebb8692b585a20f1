//! Ports of this machine for a server that is told which ones to use.

use crate::target;
use std::fs::{self, File};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{Ipv4Addr, TcpListener};

/// Below are those of known services.
const FIRST: u16 = 10_240;
/// Where the kernel begins to choose from, unless it says otherwise.
const USUAL_END: u16 = 32_768;
const RANGE: &str = "/proc/sys/net/ipv4/ip_local_port_range";

/// Consecutive ports that no other test process of this target directory takes as long as this lives.
///
/// None of them is one that the kernel gives to a connection: while a server is down, a client's own connection
/// could take its port, or even connect to itself.
#[derive(Debug)]
pub(crate) struct Ports {
    pub(crate) first: u16,
    /// Locked.
    _file: File,
}

impl Ports {
    /// `count` ports that nobody listens on.
    pub(crate) fn take(count: u16) -> io::Result<Self> {
        let folder = target::folder()?.join("ports");
        fs::create_dir_all(&folder)?;
        let places = (end().saturating_sub(FIRST) / count).max(1);
        // Processes that begin at different places seldom meet.
        let start = RandomState::new().hash_one(std::process::id()) % u64::from(places);
        let start = u16::try_from(start).unwrap_or(0);
        for turn in 0..places {
            let first = FIRST + (start + turn) % places * count;
            let file = File::options()
                .create(true)
                .write(true)
                .truncate(false)
                .open(folder.join(first.to_string()))?;
            if file.try_lock().is_ok() && (first..first + count).all(is_free) {
                return Ok(Self { first, _file: file });
            }
        }
        Err(io::Error::other(format!("{count} free ports in a row are not to be had")))
    }
}

fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).is_ok()
}

fn end() -> u16 {
    let told = fs::read_to_string(RANGE).ok();
    let first = told.as_deref().and_then(|text| text.split_whitespace().next()?.parse().ok());
    first.filter(|first| *first > FIRST + 1_000).unwrap_or(USUAL_END)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_taken_at_once_are_apart_and_below_those_of_the_kernel() {
        let taken: Vec<Ports> = (0..8).map(|_| Ports::take(10).unwrap()).collect();
        let mut firsts: Vec<u16> = taken.iter().map(|ports| ports.first).collect();
        firsts.sort_unstable();
        assert!(firsts.windows(2).all(|pair| pair[1] - pair[0] >= 10), "{firsts:?}");
        assert!(firsts[7] + 10 <= end(), "{firsts:?}");
    }

    #[test]
    fn a_port_that_somebody_listens_on_is_not_taken() {
        let ports = Ports::take(1).unwrap();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, ports.first)).unwrap();
        assert!(!is_free(ports.first));
        drop(listener);
        assert!(is_free(ports.first));
    }
}
