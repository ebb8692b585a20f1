//! The table of docs/LAYOUTS.md is what the code says.

use hicache_core::{Alignment, DType, Geometry, PageLayout, PageOrder};

const DOCUMENT: &str = include_str!("../../../docs/LAYOUTS.md");
const BEGIN: &str = "<!-- table: begin -->\n";
const END: &str = "<!-- table: end -->\n";

/// One pool of a model: its name, the tensor-parallel sizes with pages of their own, and a page's geometry at one.
struct Pool {
    name: &'static str,
    tp: &'static [u32],
    geometry: fn(u32) -> Geometry,
}

const BY_HEADS: &[u32] = &[1, 2, 4, 8];
/// Every rank holds the same bytes.
const REPLICATED: &[u32] = &[1];

fn mha(layers: u32, heads: u32) -> Geometry {
    Geometry::Mha { layers, tokens: 64, heads, head_dim: 128, dtype: DType::Bf16 }
}

fn half(head_dim: u32, tp: u32) -> Geometry {
    Geometry::HalfMha { layers: 48, tokens: 64, heads: 8 / tp, head_dim, dtype: DType::Bf16 }
}

fn mla(tokens: u32, latent_dim: u32, dtype: DType) -> Geometry {
    Geometry::Mla { layers: 61, tokens, latent_dim, dtype }
}

const POOLS: [Pool; 11] = [
    Pool { name: "Llama-3-8B, P 64", tp: BY_HEADS, geometry: |tp| mha(32, 8 / tp) },
    Pool { name: "Qwen3-32B, P 64", tp: BY_HEADS, geometry: |tp| mha(64, 8 / tp) },
    Pool { name: "K of K 192, V 128, P 64", tp: BY_HEADS, geometry: |tp| half(192, tp) },
    Pool { name: "V of K 192, V 128, P 64", tp: BY_HEADS, geometry: |tp| half(128, tp) },
    Pool { name: "DeepSeek-V3 bf16, P 64", tp: REPLICATED, geometry: |_| mla(64, 576, DType::Bf16) },
    Pool { name: "DeepSeek-V3 bf16, P 32", tp: REPLICATED, geometry: |_| mla(32, 576, DType::Bf16) },
    Pool { name: "DeepSeek-V3 bf16, P 16", tp: REPLICATED, geometry: |_| mla(16, 576, DType::Bf16) },
    Pool { name: "DeepSeek-V3 fp8, P 64", tp: REPLICATED, geometry: |_| mla(64, 576, DType::F8E4m3) },
    Pool { name: "sparse attention fp8 packed, P 64", tp: REPLICATED, geometry: |_| mla(64, 656, DType::U8) },
    Pool {
        name: "its indexer, P 64",
        tp: REPLICATED,
        geometry: |_| Geometry::Indexer {
            layers: 61,
            tokens: 64,
            token_len: Geometry::indexer_token_len(128),
        },
    },
    Pool {
        name: "state 32 x 128 x 128 f32",
        tp: BY_HEADS,
        geometry: |tp| Geometry::State { layers: 36, layer_len: (32 / tp) as usize * 128 * 128 * 4 },
    },
];

fn row(pool: &Pool, order: PageOrder, tp: u32) -> String {
    let layout = PageLayout::new((pool.geometry)(tp), order).unwrap();
    let at = |bytes| layout.is_stride_page_aligned(Alignment::new(bytes).unwrap());
    let yes = |aligned| if aligned { "yes" } else { "no" };
    let mode = |aligned| if aligned { "direct" } else { "bounce" };
    let tp = if pool.tp.len() == 1 { "any".to_owned() } else { tp.to_string() };
    format!(
        "| {} | {} | {tp} | {} | {} x {} | {} / {} | {} / {} |\n",
        pool.name,
        order.name(),
        layout.page_len(),
        layout.planes(),
        layout.piece_len(),
        yes(at(512)),
        yes(at(4_096)),
        mode(at(512)),
        mode(at(4_096)),
    )
}

fn table() -> String {
    let mut table = String::from(
        "| pool | order | tp | page bytes | pieces | aligned to 512 / 4096 | mode at 512 / 4096 |\n\
         | --- | --- | --- | ---: | ---: | --- | --- |\n",
    );
    for pool in &POOLS {
        for order in PageOrder::ALL {
            pool.tp.iter().for_each(|tp| table.push_str(&row(pool, order, *tp)));
        }
    }
    table
}

#[test]
fn the_documented_table_is_what_the_code_says() {
    let (_, rest) = DOCUMENT.split_once(BEGIN).unwrap();
    let (documented, _) = rest.split_once(END).unwrap();
    let table = table();
    assert!(documented == table, "put this between the marks of docs/LAYOUTS.md:\n{table}");
}
