//! The file store moves pages of a layout in the mode that docs/LAYOUTS.md says.

use hicache::{
    Backing, DType, Geometry, HostPool, Namespace, PageLayout, PageOrder, RegionSpec, StorageBackendExt,
};
use hicache_tests::skip;

const TEST: &str = "layouts_move_in_the_mode_that_their_alignment_says";

#[test]
fn layouts_move_in_the_mode_that_their_alignment_says() {
    let folder = tempfile::tempdir().unwrap();
    let store = hicache::open(&format!("file:{}", folder.path().display())).unwrap();
    let dtype = DType::Bf16;
    let geometries = [
        Geometry::Mha { layers: 4, tokens: 64, heads: 2, head_dim: 128, dtype },
        Geometry::Mla { layers: 61, tokens: 32, latent_dim: 576, dtype },
        Geometry::Mla { layers: 61, tokens: 16, latent_dim: 576, dtype },
        Geometry::Indexer { layers: 61, tokens: 64, token_len: Geometry::indexer_token_len(128) },
        Geometry::Indexer { layers: 60, tokens: 64, token_len: Geometry::indexer_token_len(128) },
        Geometry::State { layers: 3, layer_len: 49_152 },
    ];
    let (mut direct, mut bounced) = (0, 0);
    for geometry in geometries {
        for order in PageOrder::ALL {
            let layout = PageLayout::new(geometry, order).unwrap();
            let backend = store.backend(Namespace::named(&layout.to_string(), layout).unwrap()).unwrap();
            let strides = layout.strides(1, backend.capabilities().alignment).unwrap();
            let spec =
                RegionSpec { len: strides.region_len(), backing: Backing::Private, ..RegionSpec::default() };
            let pool = HostPool::new(spec.map().unwrap(), strides, &[]).unwrap();
            let page = pool.alloc(1).unwrap().remove(0).freeze();
            let key = hicache::PageKey::new([1; 32]);
            backend.set(hicache::Put { key, parent: None, page }).wait().unwrap();
            let stats = backend.stats();
            if stats.buffered > 0 {
                return skip(TEST, "needs direct I/O where temporary files lie");
            }
            let aligned = layout.is_stride_page_aligned(backend.capabilities().alignment);
            assert_eq!((stats.direct, stats.bounced), if aligned { (1, 0) } else { (0, 1) }, "{layout}");
            direct += stats.direct;
            bounced += stats.bounced;
        }
    }
    assert!(direct > 0 && bounced > 0, "both modes were tried");
}
