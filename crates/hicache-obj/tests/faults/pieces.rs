//! Pages of several pieces, long and short, however the service cuts up what it sends.

use crate::stage::Stage;
use crate::stub::{Action, Settings, bounded};
use hicache_core::{
    Backing, DType, Geometry, Namespace, PageLayout, PageOrder, Put, StorageBackendExt as _, Store as _,
};
use hicache_testkit::pages;
use std::time::Duration;

/// Six pieces of so many bytes: those of 42,500 are read straight into the page, the others several at once.
fn layouts() -> [PageLayout; 3] {
    [(17, 10, 125), (16, 8, 128), (13, 3, 77)].map(|(tokens, heads, head_dim)| {
        let geometry = Geometry::Mha { layers: 3, tokens, heads, head_dim, dtype: DType::Bf16 };
        PageLayout::new(geometry, PageOrder::LayerFirst).unwrap()
    })
}

#[test]
fn pieces_come_back_as_they_went_in_memory_of_ones_own_and_in_shared_memory() {
    bounded(|| {
        let deliveries: [fn() -> Action; 4] = [
            Action::normal,
            || Action::normal().chunked(),
            || Action::normal().pace(7_919, Duration::ZERO),
            || Action::normal().chunked().pace(50_021, Duration::ZERO),
        ];
        // Whole, and in parts that end anywhere in a piece.
        for multipart_threshold in [u64::MAX, 16_384] {
            let stage = Stage::settled(4096, Settings::default(), |options| {
                (options.multipart_threshold, options.part_len) = (multipart_threshold, 50_000);
            });
            for (number, layout) in layouts().into_iter().enumerate() {
                let namespace = Namespace::named(&format!("pieces-{number}"), layout).unwrap();
                let backend = stage.store.backend(namespace).unwrap();
                let alignment = backend.capabilities().alignment;
                for (seed, backing) in [(1, Backing::Private), (2, Backing::Shared)] {
                    let pool = pages::pool(&layout, 2, alignment, backing);
                    let mut page = pool.alloc(1).unwrap().remove(0);
                    pages::fill(&mut page, seed);
                    let key = pages::key(seed);
                    backend.set(Put { key, parent: None, page: page.freeze() }).wait().unwrap();
                    for (index, delivery) in deliveries.iter().enumerate() {
                        let delivery = *delivery;
                        stage.on_pages(move |request, _| match request.method.as_str() {
                            "GET" => delivery(),
                            _ => Action::normal(),
                        });
                        let mut into = pool.alloc(1).unwrap().remove(0);
                        pages::spoil(&mut into);
                        let page = backend.get(key, into).wait().unwrap().expect("it is there");
                        let wrong = pages::difference(&page, seed);
                        assert_eq!(wrong, None, "{layout}, {backing:?}, {index}, {multipart_threshold}");
                    }
                }
            }
        }
    });
}
