//! The server that a test has: where it is, who may use it, and what can be done to it.

use crate::choice::{Absent, Kind, first, promised};
use crate::client::Client;
use crate::container::Container;
use crate::package::Package;
use hicache_tests::skip;
use std::io::{self, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// From a start until the server keeps what it is given.
const READY: Duration = Duration::from_secs(90);
/// Between two looks at a server that is not ready yet: it tells nobody when it is.
const PAUSE: Duration = Duration::from_millis(50);
/// A server that does not answer its health path within this is not healthy.
const HEALTH: Duration = Duration::from_secs(2);

/// Where a server is, and with what credentials it is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// `http://HOST:PORT`, without a slash at its end.
    pub endpoint: String,
    /// The bucket of the tests. It is there.
    pub bucket: String,
    /// The region that requests are signed for.
    pub region: String,
    /// The access key.
    pub access_key: String,
    /// The secret key: one of a server that lives as long as a test, unless somebody else's server is used.
    pub secret_key: String,
}

/// A server in use.
#[derive(Debug)]
pub struct S3Server {
    origin: Origin,
    access: Access,
}

/// Where a server came from.
#[derive(Debug)]
pub(crate) enum Origin {
    Container(Box<Container>),
    Endpoint(Access),
    Package(Package),
}

impl Access {
    pub(crate) const BUCKET: &str = "hicache-test";
    pub(crate) const REGION: &str = "us-east-1";
    const ACCESS_KEY: &str = "hicachetest";
    const SECRET_KEY: &str = "hicachetestsecret";

    /// To a server of ours on this port of this machine.
    pub(crate) fn own(port: u16) -> Self {
        Self {
            endpoint: format!("http://127.0.0.1:{port}"),
            bucket: Self::BUCKET.to_owned(),
            region: Self::REGION.to_owned(),
            access_key: Self::ACCESS_KEY.to_owned(),
            secret_key: Self::SECRET_KEY.to_owned(),
        }
    }

    /// The URL of the store under `prefix`, as `--backend` takes it.
    pub fn url(&self, prefix: &str) -> String {
        let Self { endpoint, bucket, region, access_key, secret_key } = self;
        format!(
            "s3://{bucket}/{prefix}?endpoint={endpoint}&region={region}&path_style=true&credentials=static\
             &access_key={access_key}&secret_key={secret_key}"
        )
    }
}

impl S3Server {
    /// The first kind of server that there is, ready, with its bucket. Says on standard error which.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub fn start() -> Result<Self, Absent> {
        Self::start_of(&Kind::ALL)
    }

    /// The first of these kinds that there is.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub fn start_of(kinds: &[Kind]) -> Result<Self, Absent> {
        let (origin, absent) = first(kinds)?;
        let access = match &origin {
            Origin::Container(container) => container.access().clone(),
            Origin::Endpoint(access) => access.clone(),
            Origin::Package(package) => package.access().clone(),
        };
        let mut server = Self { origin, access };
        server.tell(&absent);
        server.wait()?;
        Ok(server)
    }

    /// One of these kinds for `test`, which is skipped aloud where there is none.
    ///
    /// # Panics
    ///
    /// If there is none and `CI` is `true`: there the test would not be run anywhere.
    #[track_caller]
    pub fn for_test(test: &str, kinds: &[Kind]) -> Option<Self> {
        match Self::start_of(kinds) {
            Ok(server) => Some(server),
            Err(absent) => {
                assert!(!promised(), "{test}: {absent}");
                skip(test, &absent.to_string());
                None
            }
        }
    }

    /// Where it came from.
    pub fn kind(&self) -> Kind {
        match &self.origin {
            Origin::Container(_) => Kind::Container,
            Origin::Endpoint(_) => Kind::Endpoint,
            Origin::Package(_) => Kind::Package,
        }
    }

    /// What it is, for people.
    pub fn name(&self) -> String {
        match &self.origin {
            Origin::Container(container) => format!("{} in a container", container.image()),
            Origin::Endpoint(_) => "the server that was named".to_owned(),
            Origin::Package(package) => format!("{} from a package", package.name()),
        }
    }

    /// How it is reached.
    pub fn access(&self) -> &Access {
        &self.access
    }

    /// A client with a connection pool of its own.
    pub fn client(&self) -> Client {
        Client::new(&self.access)
    }

    /// Kills it, as `kill -9` does. What it had on its disk stays.
    ///
    /// # Panics
    ///
    /// If it is somebody else's, or does not die.
    pub fn kill(&mut self) {
        match &mut self.origin {
            Origin::Container(container) => container.kill(),
            Origin::Endpoint(access) => not_ours(access),
            Origin::Package(package) => package.kill(),
        }
    }

    /// Stops all of its threads where they are: connections stay open and nobody answers.
    ///
    /// # Panics
    ///
    /// If it is somebody else's, or is not running.
    pub fn pause(&self) {
        match &self.origin {
            Origin::Container(container) => container.pause(),
            Origin::Endpoint(access) => not_ours(access),
            Origin::Package(package) => package.pause(),
        }
    }

    /// Lets it go on after a pause.
    ///
    /// # Panics
    ///
    /// If it is somebody else's, or was not paused.
    pub fn resume(&self) {
        match &self.origin {
            Origin::Container(container) => container.resume(),
            Origin::Endpoint(access) => not_ours(access),
            Origin::Package(package) => package.resume(),
        }
    }

    /// Starts it again after a kill, on the same address and the same disk, and waits until it keeps what it is given.
    ///
    /// # Panics
    ///
    /// If it is somebody else's, or does not become ready.
    pub fn restart(&mut self) {
        match &mut self.origin {
            Origin::Container(container) => container.restart(),
            Origin::Endpoint(access) => not_ours(access),
            Origin::Package(package) => package.restart(),
        }
        self.wait().unwrap_or_else(|absent| panic!("{absent}"));
    }

    /// Whether its health path answers. An endpoint has none that is known: it is healthy when it can be connected to.
    pub fn is_healthy(&self) -> bool {
        let path = match &self.origin {
            Origin::Container(container) => Some(container.health_path()),
            Origin::Endpoint(_) => None,
            Origin::Package(package) => Some(package.health_path()),
        };
        healthy(&self.access.endpoint, path).unwrap_or(false)
    }

    /// Waits until it is healthy, has the bucket, and keeps an object: it answers before it can do so.
    fn wait(&mut self) -> Result<(), Absent> {
        let end = Instant::now() + READY;
        let client = self.client();
        loop {
            let ready = if self.is_healthy() { client.prove() } else { Err("it does not answer".to_owned()) };
            let Err(why) = ready else { return Ok(()) };
            let ended = match &mut self.origin {
                Origin::Package(package) => package.ended(),
                Origin::Container(_) | Origin::Endpoint(_) => None,
            };
            if let Some(why) = ended {
                return Err(Absent(format!("{}: {why}", self.name())));
            }
            if Instant::now() >= end {
                return Err(Absent(format!("{} is not ready within {READY:?}: {why}", self.name())));
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Past what captures the output of tests that pass.
    fn tell(&self, absent: &[Absent]) {
        let mut line = format!("S3 server: {}, {}", self.name(), self.access.endpoint);
        for (index, why) in absent.iter().enumerate() {
            line.push_str(if index == 0 { " (" } else { "; " });
            line.push_str(&why.to_string());
        }
        line.push_str(if absent.is_empty() { "\n" } else { ")\n" });
        // Nobody may be listening.
        let _ = io::stderr().write_all(line.as_bytes());
    }
}

fn not_ours(access: &Access) {
    panic!("the server at {} is somebody else's: ask for a kind in `Kind::OWN`", access.endpoint);
}

/// One GET of the path by hand, since no client is needed for it.
fn healthy(endpoint: &str, path: Option<&str>) -> io::Result<bool> {
    use std::io::Read;
    use std::net::ToSocketAddrs;
    let host = endpoint.split_once("://").map_or(endpoint, |(_, host)| host);
    let default = if endpoint.starts_with("https") { 443 } else { 80 };
    let with_port = if host.contains(':') { host.to_owned() } else { format!("{host}:{default}") };
    let addresses: Vec<SocketAddr> = with_port.to_socket_addrs()?.collect();
    let address = addresses.first().ok_or_else(|| io::Error::other("no address"))?;
    let mut stream = TcpStream::connect_timeout(address, HEALTH)?;
    let Some(path) = path else { return Ok(true) };
    stream.set_read_timeout(Some(HEALTH))?;
    stream.set_write_timeout(Some(HEALTH))?;
    stream
        .write_all(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").as_bytes())?;
    let mut status = [0; "HTTP/1.1 200".len()];
    stream.read_exact(&mut status)?;
    // Whatever follows is of no interest.
    let _ = stream.shutdown(Shutdown::Both);
    Ok(status.ends_with(b" 200"))
}
