//! Objects in memory, whose bodies are used again when they are gone: new memory is slow to touch.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

/// What happens to the bodies of uploads.
#[derive(Clone, Debug)]
pub(crate) enum Keep {
    All,
    /// They are thrown away; downloads get these bytes.
    Nothing(Arc<Vec<u8>>),
}

/// All objects, by bucket and key.
#[derive(Debug)]
pub(crate) struct Objects {
    keep: Keep,
    objects: RwLock<BTreeMap<(String, String), Arc<Object>>>,
    spare: Arc<Spare>,
    written: AtomicU64,
}

/// One object.
#[derive(Debug)]
pub(crate) struct Object {
    pub(crate) body: Body,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) etag: String,
}

/// Its bytes.
#[derive(Debug)]
pub(crate) enum Body {
    Own { bytes: Vec<u8>, spare: Arc<Spare> },
    Fixed(Arc<Vec<u8>>),
}

/// Memory of bodies that are gone.
#[derive(Debug, Default)]
pub(crate) struct Spare(Mutex<Vec<Vec<u8>>>);

impl Keep {
    /// Nothing, and `len` bytes for whoever asks.
    pub(crate) fn nothing(len: usize) -> Self {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut bytes = vec![0; len];
        for word in bytes.chunks_mut(size_of::<u64>()) {
            // xorshift64
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            word.copy_from_slice(&state.to_le_bytes()[..word.len()]);
        }
        Self::Nothing(Arc::new(bytes))
    }
}

impl Objects {
    pub(crate) fn new(keep: Keep) -> Self {
        Self { keep, objects: RwLock::default(), spare: Arc::default(), written: AtomicU64::new(0) }
    }

    /// A body of `len` bytes for an upload to be received into; `None` where it is thrown away.
    pub(crate) fn body(&self, len: usize) -> Option<Body> {
        match self.keep {
            Keep::All => {
                let mut bytes = self.spare.take(len);
                // What was used before has its length, so that nothing is filled with zeros again.
                bytes.resize(len, 0);
                Some(Body::Own { bytes, spare: Arc::clone(&self.spare) })
            }
            Keep::Nothing(_) => None,
        }
    }

    /// Stores an object; `None` if there is one and only a new one was wanted.
    pub(crate) fn put(
        &self,
        bucket: String,
        key: String,
        body: Option<Body>,
        headers: Vec<(String, String)>,
        only_new: bool,
    ) -> Option<Arc<Object>> {
        let body = match (body, &self.keep) {
            (Some(body), _) => body,
            (None, Keep::Nothing(bytes)) => Body::Fixed(Arc::clone(bytes)),
            (None, Keep::All) => Body::Fixed(Arc::default()),
        };
        let serial = self.written.fetch_add(1, Ordering::Relaxed);
        let object = Arc::new(Object { body, headers, etag: format!("\"{serial:032x}\"") });
        let mut objects = self.objects.write().unwrap_or_else(PoisonError::into_inner);
        let place = (bucket, key);
        if only_new && objects.contains_key(&place) {
            return None;
        }
        let replaced = objects.insert(place, Arc::clone(&object));
        drop(objects);
        // Outside the lock: it may be the last holder of a large body.
        drop(replaced);
        Some(object)
    }

    pub(crate) fn get(&self, bucket: &str, key: &str) -> Option<Arc<Object>> {
        let objects = self.objects.read().unwrap_or_else(PoisonError::into_inner);
        objects.get(&(bucket.to_owned(), key.to_owned())).map(Arc::clone)
    }

    pub(crate) fn remove(&self, bucket: &str, key: &str) {
        let mut objects = self.objects.write().unwrap_or_else(PoisonError::into_inner);
        let removed = objects.remove(&(bucket.to_owned(), key.to_owned()));
        drop(objects);
        drop(removed);
    }

    /// Visits keys of a bucket behind `after`, in order, with their lengths and tags, until the visitor says no.
    pub(crate) fn visit(&self, bucket: &str, after: &str, mut visitor: impl FnMut(&str, &Object) -> bool) {
        let objects = self.objects.read().unwrap_or_else(PoisonError::into_inner);
        let start = Bound::Excluded((bucket.to_owned(), after.to_owned()));
        for ((found, key), object) in objects.range((start, Bound::Unbounded)) {
            if found != bucket || !visitor(key, object) {
                return;
            }
        }
    }
}

impl Body {
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Own { bytes, .. } => bytes,
            Self::Fixed(bytes) => bytes,
        }
    }

    /// To receive an upload into; `None` for a body that is not of one.
    pub(crate) fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        match self {
            Self::Own { bytes, .. } => Some(bytes),
            Self::Fixed(_) => None,
        }
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        if let Self::Own { bytes, spare } = self {
            spare.lock().push(std::mem::take(bytes));
        }
    }
}

impl Spare {
    /// Memory with room for `len` bytes, if some is spare that is not much larger; else none.
    fn take(&self, len: usize) -> Vec<u8> {
        let mut spare = self.lock();
        let fits = |bytes: &Vec<u8>| bytes.capacity() >= len && bytes.capacity() / 2 <= len;
        spare.iter().rposition(fits).map_or_else(Vec::new, |index| spare.swap_remove(index))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Vec<u8>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_a_replaced_object_is_used_again() {
        let objects = Objects::new(Keep::All);
        let put = |fill: u8| {
            let mut body = objects.body(4096).unwrap();
            body.bytes_mut().unwrap().fill(fill);
            let place = body.bytes().as_ptr();
            objects.put("b".to_owned(), "k".to_owned(), Some(body), Vec::new(), false).unwrap();
            place
        };
        let first = put(1);
        put(2);
        assert_eq!(put(3), first);
        assert!(objects.get("b", "k").unwrap().body.bytes().iter().all(|byte| *byte == 3));
        objects.remove("b", "k");
        assert!(objects.get("b", "k").is_none());
    }

    #[test]
    fn only_a_new_object_is_written_where_that_is_wanted() {
        let objects = Objects::new(Keep::nothing(7));
        let put = || objects.put("b".to_owned(), "k".to_owned(), objects.body(1), Vec::new(), true);
        assert_eq!(put().unwrap().body.bytes().len(), 7);
        assert!(put().is_none());
    }

    #[test]
    fn a_bucket_is_visited_in_order_and_not_the_next_one() {
        let objects = Objects::new(Keep::All);
        for (bucket, key) in [("b", "2"), ("c", "0"), ("b", "1"), ("a", "9"), ("b", "3")] {
            objects.put(bucket.to_owned(), key.to_owned(), objects.body(1), Vec::new(), false).unwrap();
        }
        let mut keys = Vec::new();
        objects.visit("b", "1", |key, _| {
            keys.push(key.to_owned());
            true
        });
        assert_eq!(keys, ["2", "3"]);
    }
}
