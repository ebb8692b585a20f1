//! The server: a listener, a thread per connection, and the record of what came.

use super::clock;
use super::objects::Buckets;
use super::script::{Action, Answer, Expect};
use super::sigv4::{self, Access};
use super::tls::Authority;
use super::wire::{Close, Reply, Request, Wire, percent_decode};
use std::collections::BTreeMap;
use std::io::{ErrorKind, Result};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// How long an answer that came before the body waits for the client to notice it.
const NOTICE: Duration = Duration::from_secs(5);

type Script = Arc<dyn Fn(&Request, usize) -> Action + Send + Sync>;

/// How a server is set up.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) buckets: Vec<&'static str>,
    /// Path under which S3 lies, as `/base`.
    pub(crate) base: &'static str,
    /// Hosts `BUCKET.DOMAIN` name a bucket.
    pub(crate) domain: &'static str,
    /// Listens on `[::1]` in place of `127.0.0.1`.
    pub(crate) ipv6: bool,
    pub(crate) tls: Option<Authority>,
    /// As a proxy: speaks TLS inside `CONNECT` as whatever host this signs for. Without it, `CONNECT` is refused.
    pub(crate) tunnel: Option<Authority>,
    /// Bytes that a connection takes before it is read, where the system's default is too many.
    pub(crate) receive_buffer: Option<usize>,
    /// Who may come in; everybody, where it is empty.
    pub(crate) keys: Vec<Access>,
    pub(crate) region: &'static str,
    /// What becomes of a connection on which nothing comes for a while.
    pub(crate) idle: Option<Idle>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            buckets: vec!["b"],
            base: "",
            domain: "localhost",
            ipv6: false,
            tls: None,
            tunnel: None,
            receive_buffer: None,
            keys: Vec::new(),
            region: "us-east-1",
            idle: None,
        }
    }
}

/// A server's patience with a connection between two requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Idle {
    pub(crate) after: Duration,
    pub(crate) how: IdleEnd,
}

/// What an impatient server does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IdleEnd {
    /// Ends the connection.
    Close(Close),
    /// Answers the next request on it with `400 RequestTimeout`, then ends it.
    Refuse,
    /// Writes `400 RequestTimeout` unasked, then ends it.
    Unasked,
}

/// A running server; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Stub {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    settings: Settings,
    keys: Mutex<Vec<Access>>,
    buckets: Mutex<Buckets>,
    /// The script, and how many requests it has seen.
    script: Mutex<(Script, usize)>,
    record: Mutex<Vec<Request>>,
    /// Of the connections that are open.
    sockets: Mutex<BTreeMap<usize, TcpStream>>,
    accepted: AtomicUsize,
    number: AtomicUsize,
    skew: AtomicI64,
    stopped: AtomicBool,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Stub {
    /// With a bucket `b`, on plain HTTP, open to everybody.
    pub(crate) fn start() -> Self {
        Self::with(Settings::default())
    }

    pub(crate) fn with(settings: Settings) -> Self {
        let ip: IpAddr = if settings.ipv6 { Ipv6Addr::LOCALHOST.into() } else { Ipv4Addr::LOCALHOST.into() };
        let listener = TcpListener::bind((ip, 0)).expect("a free port");
        if let Some(len) = settings.receive_buffer {
            rustix::net::sockopt::set_socket_recv_buffer_size(&listener, len).expect("a size");
        }
        let address = listener.local_addr().expect("its own address");
        let shared = Arc::new(Shared {
            keys: Mutex::new(settings.keys.clone()),
            buckets: Mutex::new(Buckets::named(&settings.buckets)),
            script: Mutex::new((Arc::new(|_, _| Action::normal()), 0)),
            record: Mutex::default(),
            sockets: Mutex::default(),
            accepted: AtomicUsize::new(0),
            number: AtomicUsize::new(0),
            skew: AtomicI64::new(0),
            stopped: AtomicBool::new(false),
            settings,
        });
        let held = Arc::clone(&shared);
        std::thread::spawn(move || accept(&listener, &held));
        Self { address, shared }
    }

    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    /// `127.0.0.1:PORT`, as a Host header has it.
    pub(crate) fn host(&self) -> String {
        self.address.to_string()
    }

    /// The URL of the server, its base path included.
    pub(crate) fn endpoint(&self) -> String {
        let scheme = if self.shared.settings.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}{}", self.address, self.shared.settings.base)
    }

    /// Puts `script` in charge. It sees the head of each request, and the count of those it has seen.
    pub(crate) fn script(&self, script: impl Fn(&Request, usize) -> Action + Send + Sync + 'static) {
        *self.shared.script.lock().unwrap() = (Arc::new(script), 0);
    }

    pub(crate) fn buckets(&self) -> MutexGuard<'_, Buckets> {
        self.shared.buckets.lock().unwrap()
    }

    /// Who may come in.
    pub(crate) fn keys(&self) -> MutexGuard<'_, Vec<Access>> {
        self.shared.keys.lock().unwrap()
    }

    /// Moves the server's clock, which its Date header tells and its signature check goes by.
    pub(crate) fn skew(&self, seconds: i64) {
        self.shared.skew.store(seconds, Ordering::SeqCst);
    }

    /// What came since the last [`forget`](Self::forget), in order of arrival.
    pub(crate) fn requests(&self) -> Vec<Request> {
        let mut record = self.shared.record.lock().unwrap().clone();
        record.sort_by_key(|request| request.number);
        record
    }

    /// Requests with that method.
    pub(crate) fn count(&self, method: &str) -> usize {
        self.shared.record.lock().unwrap().iter().filter(|request| request.method == method).count()
    }

    /// Empties the record.
    pub(crate) fn forget(&self) {
        self.shared.record.lock().unwrap().clear();
    }

    /// Connections that were ever accepted.
    pub(crate) fn connections(&self) -> usize {
        self.shared.accepted.load(Ordering::SeqCst)
    }

    /// Connections that are open.
    pub(crate) fn open_connections(&self) -> usize {
        self.shared.sockets.lock().unwrap().len()
    }

    /// Ends every connection, without a word.
    pub(crate) fn disconnect(&self) {
        self.shared.disconnect();
    }
}

impl Drop for Stub {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::SeqCst);
        // The listener's thread waits in accept, and looks at the flag after it.
        let _ = TcpStream::connect(self.address);
        self.shared.disconnect();
    }
}

impl Shared {
    fn disconnect(&self) {
        self.sockets.lock().unwrap().values().for_each(|socket| drop(socket.shutdown(Shutdown::Both)));
    }

    fn action(&self, request: &Request) -> Action {
        let (script, n) = {
            let mut script = self.script.lock().unwrap();
            script.1 += 1;
            (Arc::clone(&script.0), script.1 - 1)
        };
        script(request, n)
    }

    fn normal(&self, request: &Request) -> Reply {
        let now = clock::now(self.skew.load(Ordering::SeqCst));
        let keys = self.keys.lock().unwrap().clone();
        match sigv4::check(request, &keys, self.settings.region, now) {
            Ok(()) => self.buckets.lock().unwrap().answer(request),
            Err(refusal) => refusal,
        }
    }

    fn note(&self, request: &Request) {
        let noted = Request { body: Vec::new(), ..request.clone() };
        self.record.lock().unwrap().push(noted);
    }

    fn note_body(&self, request: &Request) {
        let mut record = self.record.lock().unwrap();
        if let Some(noted) = record.iter_mut().find(|noted| noted.number == request.number) {
            noted.body_len = request.body_len;
        }
    }

    /// Bucket and key of a path under the base, or of a host `BUCKET.DOMAIN`.
    fn place(&self, path: &str, host: &str) -> (String, String) {
        let path = path.strip_prefix(self.settings.base).unwrap_or(path);
        let path = path.strip_prefix('/').unwrap_or(path);
        let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
        if let Some(bucket) = name.strip_suffix(self.settings.domain).and_then(|name| name.strip_suffix('.'))
        {
            return (bucket.to_owned(), percent_decode(path));
        }
        let (bucket, key) = path.split_once('/').unwrap_or((path, ""));
        (percent_decode(bucket), percent_decode(key))
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for (connection, socket) in listener.incoming().enumerate() {
        if shared.stopped.load(Ordering::SeqCst) {
            return;
        }
        let Ok(socket) = socket else { continue };
        let _ = socket.set_nodelay(true);
        shared.accepted.fetch_add(1, Ordering::SeqCst);
        let Ok(handle) = socket.try_clone() else { continue };
        shared.sockets.lock().unwrap().insert(connection, handle);
        let shared = Arc::clone(shared);
        std::thread::spawn(move || {
            let mut wire = match &shared.settings.tls {
                Some(authority) => Wire::secure(authority.accept(socket)),
                None => Wire::plain(socket),
            };
            // A client that goes away ends its connection and nothing else.
            let close = serve(&shared, &mut wire, connection).unwrap_or(Close::Fin);
            // The second handle would keep a closed connection open.
            shared.sockets.lock().unwrap().remove(&connection);
            wire.close(close);
        });
    }
}

/// Answers what comes on one connection; how it then ends.
fn serve(shared: &Shared, wire: &mut Wire, connection: usize) -> Result<Close> {
    let mut served = 0;
    loop {
        let since = Instant::now();
        let idle = shared.settings.idle.filter(|_| served > 0);
        let limit = idle.filter(|idle| idle.how != IdleEnd::Refuse).map(|idle| idle.after);
        match wire.wait(limit) {
            Ok(true) => {}
            Ok(false) => return Ok(Close::Fin),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return match idle.expect("only an impatient server waits with a limit").how {
                    IdleEnd::Close(close) => Ok(close),
                    IdleEnd::Refuse | IdleEnd::Unasked => refuse(wire),
                };
            }
            Err(error) => return Err(error),
        }
        let mut request = read_head(shared, wire, connection)?;
        if idle.is_some_and(|idle| idle.how == IdleEnd::Refuse && since.elapsed() > idle.after) {
            shared.note(&request);
            return refuse(wire);
        }
        let action = shared.action(&request);
        shared.note(&request);
        if request.method == "CONNECT" {
            let Some(authority) = &shared.settings.tunnel else {
                wire.reply(&Reply::new(502), &Action::normal().close(Close::Fin).delivery, false)?;
                return Ok(Close::Fin);
            };
            wire.write(b"HTTP/1.1 200 Connection established\r\n\r\n")?;
            wire.secured(authority)?;
            continue;
        }
        if let Some(close) = answer(shared, wire, &mut request, action)? {
            return Ok(close);
        }
        served += 1;
    }
}

fn refuse(wire: &mut Wire) -> Result<Close> {
    let delivery = Action::normal().close(Close::Half).delivery;
    wire.reply(&Reply::error(400, "RequestTimeout"), &delivery, false)?;
    Ok(Close::Half)
}

fn read_head(shared: &Shared, wire: &mut Wire, connection: usize) -> Result<Request> {
    let (method, path, query, headers) = wire.head()?;
    let host = headers.iter().find(|(name, _)| name == "host").map_or("", |(_, value)| value.as_str());
    let (bucket, key) = shared.place(&path, host);
    Ok(Request {
        method,
        path,
        query,
        headers,
        bucket,
        key,
        body: Vec::new(),
        body_len: 0,
        connection,
        number: shared.number.fetch_add(1, Ordering::SeqCst),
        at: Instant::now(),
    })
}

/// Reads the body and answers; how the connection ends, if it does.
fn answer(shared: &Shared, wire: &mut Wire, request: &mut Request, action: Action) -> Result<Option<Close>> {
    match &action.expect {
        // An early answer takes the place of `100 Continue`.
        Expect::Continue if request.header("expect").is_some() && action.reads_body => wire.interim(100)?,
        Expect::Continue | Expect::Never => {}
        Expect::Interim(replies) => replies.iter().try_for_each(|&status| wire.interim(status))?,
    }
    if action.reads_body {
        request.body = wire.body(request, action.read_pace)?;
        request.body_len = request.body.len();
        shared.note_body(request);
    }
    let mut reply = match action.answer {
        Answer::Normal => shared.normal(request),
        Answer::Fixed(reply) => reply,
        Answer::HangUp(close) => return Ok(Some(close)),
    };
    let date = clock::http_date(clock::now(shared.skew.load(Ordering::SeqCst)));
    reply.set("x-amz-request-id", format!("STUB{:08}", request.number));
    reply.set("date", date);
    action.edits.into_iter().for_each(|edit| edit(&mut reply));
    std::thread::sleep(action.wait);
    wire.reply(&reply, &action.delivery, request.method == "HEAD")?;
    let unread = !action.reads_body && request.content_length().is_some_and(|len| len > 0);
    if unread && action.delivery.close.is_none() {
        wire.wait_for_end(NOTICE);
        return Ok(Some(Close::Rst));
    }
    Ok(action.delivery.close)
}
