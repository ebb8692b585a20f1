//! How a connection to the service is made: by name or address, through a proxy, over TLS.

use crate::options::{ObjOptions, Proxy};
use crate::place::Endpoint;
use http::{HeaderValue, Uri};
use hyper_rustls::{HttpsConnector, MaybeHttpsStream};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use hyper_util::rt::TokioIo;
use rustix::io::Errno;
use rustix::net::RecvFlags;
use rustls::{ClientConfig, RootCertStore};
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tower_service::Service;

pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A connection's bytes, in the clear.
pub(crate) type Socket = Box<dyn Duplex>;

/// Both ways of a connection, whatever lies under it.
pub(crate) trait Duplex: AsyncRead + AsyncWrite + Send + Sync + Unpin {
    /// Whether the other side has left it open and said nothing, by the kernel's word: the runtime may not have heard
    /// of it yet. Under TLS it may have said what is no part of an answer.
    fn is_silent(&self) -> bool {
        true
    }
}

/// What has a TCP connection under it.
trait OnTcp {
    fn tcp(&self) -> &TcpStream;

    fn is_secure(&self) -> bool;
}

impl OnTcp for TokioIo<TcpStream> {
    fn tcp(&self) -> &TcpStream {
        self.inner()
    }

    fn is_secure(&self) -> bool {
        false
    }
}

impl<T: OnTcp> OnTcp for MaybeHttpsStream<T> {
    fn tcp(&self) -> &TcpStream {
        match self {
            Self::Http(under) => under.tcp(),
            Self::Https(tls) => tls.inner().get_ref().0.inner().tcp(),
        }
    }

    fn is_secure(&self) -> bool {
        match self {
            Self::Http(under) => under.is_secure(),
            Self::Https(_) => true,
        }
    }
}

impl<T> Duplex for TokioIo<MaybeHttpsStream<T>>
where
    T: OnTcp,
    Self: AsyncRead + AsyncWrite + Send + Sync + Unpin,
{
    fn is_silent(&self) -> bool {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        match rustix::net::recv(self.inner().tcp(), &mut [0; 1], flags) {
            Ok((0, _)) => false,
            Ok(_) => self.inner().is_secure(),
            Err(error) => error == Errno::AGAIN,
        }
    }
}

#[cfg(test)]
impl Duplex for tokio::io::DuplexStream {}

/// What the ways to all places have in common.
#[derive(Clone)]
pub(crate) struct Dialer {
    direct: HttpsConnector<HttpConnector>,
    tls: Arc<ClientConfig>,
    proxies: Option<Arc<Matcher>>,
    limit: Duration,
}

impl Dialer {
    /// Servers are believed whose certificate leads to one of `roots`.
    pub(crate) fn new(options: &ObjOptions, roots: RootCertStore) -> Result<Self, rustls::Error> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let tls = Arc::new(tls.with_root_certificates(roots).with_no_client_auth());
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        // Of several addresses each has its share of that time.
        tcp.set_connect_timeout(Some(options.connect_timeout));
        let direct = HttpsConnector::from((tcp, Arc::clone(&tls)));
        Ok(Self { direct, tls, proxies: proxies(options).map(Arc::new), limit: options.connect_timeout })
    }

    /// Connects to the server of `origin`, or to the proxy that requests to it are sent to.
    pub(crate) async fn dial(&self, origin: &Uri) -> Result<Socket, BoxError> {
        let dialing = async {
            match self.proxy(origin) {
                None => connect(self.direct.clone(), origin).await,
                Some(proxy) if !is_secure(origin) => connect(self.direct.clone(), proxy.uri()).await,
                Some(proxy) => {
                    let mut tunnel = Tunnel::new(proxy.uri().clone(), self.direct.clone());
                    if let Some(user) = proxy.basic_auth() {
                        tunnel = tunnel.with_auth(user.clone());
                    }
                    connect(HttpsConnector::from((tunnel, Arc::clone(&self.tls))), origin).await
                }
            }
        };
        tokio::time::timeout(self.limit, dialing).await.unwrap_or_else(|_| {
            let what = if is_secure(origin) { "TLS connection" } else { "connection" };
            let why = format!("there was no {what} after {:?} (connect_timeout)", self.limit);
            Err(io::Error::new(io::ErrorKind::TimedOut, why).into())
        })
    }

    /// The proxy on the way to `origin`.
    pub(crate) fn proxy(&self, origin: &Uri) -> Option<Intercept> {
        self.proxies.as_ref()?.intercept(origin)
    }

    /// The proxy that is sent requests to `origin` as they are, rather than a tunnel's; and who uses it.
    pub(crate) fn forwards(&self, origin: &Uri) -> Option<Option<HeaderValue>> {
        let proxy = self.proxy(origin).filter(|_| !is_secure(origin))?;
        Some(proxy.basic_auth().cloned())
    }
}

impl fmt::Debug for Dialer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dialer").field("limit", &self.limit).finish_non_exhaustive()
    }
}

async fn connect<C>(mut connector: C, to: &Uri) -> Result<Socket, BoxError>
where
    C: Service<Uri, Error = BoxError>,
    TokioIo<C::Response>: Duplex + 'static,
{
    std::future::poll_fn(|cx| connector.poll_ready(cx)).await?;
    Ok(Box::new(TokioIo::new(connector.call(to.clone()).await?)))
}

/// `None`: there are none on any way.
fn proxies(options: &ObjOptions) -> Option<Matcher> {
    if goes_straight(options) {
        return None;
    }
    Some(match &options.proxy {
        Proxy::Url(url) => Matcher::builder().all(url.as_str()).build(),
        _ => Matcher::from_env(),
    })
}

/// Whether no proxy is looked for, whatever else the environment says: `NO_PROXY=*` holds for addresses, too.
pub(crate) fn goes_straight(options: &ObjOptions) -> bool {
    let by_none = |name| std::env::var(name).is_ok_and(|rules| rules.trim() == "*");
    match &options.proxy {
        Proxy::Off => true,
        Proxy::Auto => {
            options.endpoint.as_ref().is_some_and(Endpoint::is_loopback)
                || ["NO_PROXY", "no_proxy"].into_iter().any(by_none)
        }
        Proxy::Url(_) => false,
    }
}

fn is_secure(uri: &Uri) -> bool {
    uri.scheme_str() == Some("https")
}
