// One warp, one 16 x 16 tile: d = c + a b over k = 16 * steps, by one kind of instruction each.
//
// Every kernel takes the same arrays, so the host needs one way to fill and read them:
//   a [tiles][16 rows][k] and b [tiles][16 columns][k], 16-bit words (b is k-contiguous);
//   c, d [tiles][16 rows][16 columns], 32-bit or 16-bit words.
// Compiled by NVRTC without any header. Fragment layouts: PTX ISA, "Warp-level matrix fragments".

typedef unsigned short u16;
typedef unsigned int u32;

__device__ u32 pair(const u16* p) { return (u32)p[0] | (u32)p[1] << 16; }

struct Tile {
  const u16 *a, *b;
  size_t cd;
  int k;
  __device__ Tile(const u16* a_, const u16* b_, int steps) : k(16 * steps) {
    size_t tile = blockIdx.x;
    a = a_ + tile * 16 * k;
    b = b_ + tile * 16 * k;
    cd = tile * 256;
  }
};

extern "C" __global__ void wmma_m16n16k16(const u16* a, const u16* b, const float* c, float* d,
                                          int steps) {
  Tile t(a, b, steps);
  float x[8];
  asm volatile("wmma.load.c.sync.aligned.row.m16n16k16.f32 {%0,%1,%2,%3,%4,%5,%6,%7}, [%8], 16;"
               : "=f"(x[0]), "=f"(x[1]), "=f"(x[2]), "=f"(x[3]), "=f"(x[4]), "=f"(x[5]),
                 "=f"(x[6]), "=f"(x[7])
               : "l"(c + t.cd));
  for (int s = 0; s < steps; ++s) {
    u32 p[8], q[8];
    asm volatile("wmma.load.a.sync.aligned.row.m16n16k16.f16 {%0,%1,%2,%3,%4,%5,%6,%7}, [%8], %9;"
                 : "=r"(p[0]), "=r"(p[1]), "=r"(p[2]), "=r"(p[3]), "=r"(p[4]), "=r"(p[5]),
                   "=r"(p[6]), "=r"(p[7])
                 : "l"(t.a + 16 * s), "r"(t.k));
    asm volatile("wmma.load.b.sync.aligned.col.m16n16k16.f16 {%0,%1,%2,%3,%4,%5,%6,%7}, [%8], %9;"
                 : "=r"(q[0]), "=r"(q[1]), "=r"(q[2]), "=r"(q[3]), "=r"(q[4]), "=r"(q[5]),
                   "=r"(q[6]), "=r"(q[7])
                 : "l"(t.b + 16 * s), "r"(t.k));
    asm volatile(
        "wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32 {%0,%1,%2,%3,%4,%5,%6,%7},"
        " {%8,%9,%10,%11,%12,%13,%14,%15}, {%16,%17,%18,%19,%20,%21,%22,%23},"
        " {%0,%1,%2,%3,%4,%5,%6,%7};"
        : "+f"(x[0]), "+f"(x[1]), "+f"(x[2]), "+f"(x[3]), "+f"(x[4]), "+f"(x[5]), "+f"(x[6]),
          "+f"(x[7])
        : "r"(p[0]), "r"(p[1]), "r"(p[2]), "r"(p[3]), "r"(p[4]), "r"(p[5]), "r"(p[6]), "r"(p[7]),
          "r"(q[0]), "r"(q[1]), "r"(q[2]), "r"(q[3]), "r"(q[4]), "r"(q[5]), "r"(q[6]), "r"(q[7]));
  }
  asm volatile("wmma.store.d.sync.aligned.row.m16n16k16.f32 [%8], {%0,%1,%2,%3,%4,%5,%6,%7}, 16;"
               :: "f"(x[0]), "f"(x[1]), "f"(x[2]), "f"(x[3]), "f"(x[4]), "f"(x[5]), "f"(x[6]),
               "f"(x[7]), "l"(d + t.cd));
}

// The m16n8 shapes: lane = 4 * group + quad; two instructions cover the 16 columns.
// A: rows group and group + 8, columns 2*quad, 2*quad + 1, and those + 8.
// B: column group, rows as A's columns. C and D: rows as A's, columns 2*quad, 2*quad + 1.
#define M16N8_FLOAT(NAME, DEPTH, OPCODE, A_LIST, B_LIST, A_ARGS, B_ARGS)                         \
  extern "C" __global__ void NAME(const u16* a, const u16* b, const float* c, float* d,          \
                                  int steps) {                                                   \
    Tile t(a, b, steps);                                                                         \
    int group = threadIdx.x >> 2, quad = threadIdx.x & 3;                                        \
    for (int half = 0; half < 2; ++half) {                                                       \
      size_t at = t.cd + group * 16 + half * 8 + 2 * quad;                                       \
      float x0 = c[at], x1 = c[at + 1], x2 = c[at + 128], x3 = c[at + 129];                      \
      for (int k = 0; k < t.k; k += DEPTH) {                                                     \
        const u16* p = t.a + group * t.k + k + 2 * quad;                                         \
        const u16* q = t.b + (half * 8 + group) * t.k + k + 2 * quad;                            \
        asm volatile(OPCODE " {%0,%1,%2,%3}, " A_LIST ", " B_LIST ", {%0,%1,%2,%3};"             \
                     : "+f"(x0), "+f"(x1), "+f"(x2), "+f"(x3)                                    \
                     : A_ARGS, B_ARGS);                                                          \
      }                                                                                          \
      d[at] = x0, d[at + 1] = x1, d[at + 128] = x2, d[at + 129] = x3;                            \
    }                                                                                            \
  }

#define A16 "r"(pair(p)), "r"(pair(p + 8 * t.k)), "r"(pair(p + 8)), "r"(pair(p + 8 * t.k + 8))
#define B16 "r"(pair(q)), "r"(pair(q + 8))
#define A8 "r"(pair(p)), "r"(pair(p + 8 * t.k))
#define B8 "r"(pair(q))

M16N8_FLOAT(mma_m16n8k16, 16, "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
            "{%4,%5,%6,%7}", "{%8,%9}", A16, B16)
M16N8_FLOAT(mma_m16n8k16_bf16, 16, "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32",
            "{%4,%5,%6,%7}", "{%8,%9}", A16, B16)
M16N8_FLOAT(mma_m16n8k8, 8, "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32", "{%4,%5}", "{%6}",
            A8, B8)

extern "C" __global__ void mma_m16n8k16_half(const u16* a, const u16* b, const u16* c, u16* d,
                                             int steps) {
  Tile t(a, b, steps);
  int group = threadIdx.x >> 2, quad = threadIdx.x & 3;
  for (int half = 0; half < 2; ++half) {
    size_t at = t.cd + group * 16 + half * 8 + 2 * quad;
    u32 x0 = pair(c + at), x1 = pair(c + at + 128);
    for (int k = 0; k < t.k; k += 16) {
      const u16* p = t.a + group * t.k + k + 2 * quad;
      const u16* q = t.b + (half * 8 + group) * t.k + k + 2 * quad;
      asm volatile(
          "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0,%1}, {%2,%3,%4,%5}, {%6,%7},"
          " {%0,%1};"
          : "+r"(x0), "+r"(x1)
          : A16, B16);
    }
    d[at] = x0, d[at + 1] = x0 >> 16, d[at + 128] = x1, d[at + 129] = x1 >> 16;
  }
}

// m8n8k4: four independent 8 x 8 products a warp, one a quarter of the tile. Lanes l and l + 16
// with (l % 16) / 4 = part work on part `part`; the upper lanes hold rows and columns 4 to 7.
extern "C" __global__ void mma_m8n8k4(const u16* a, const u16* b, const float* c, float* d,
                                      int steps) {
  Tile t(a, b, steps);
  int lane = threadIdx.x, part = (lane % 16) / 4, upper = lane >= 16 ? 4 : 0;
  int row0 = (part >> 1) * 8, col0 = (part & 1) * 8;
  float x[8];
  size_t at[8];
  for (int i = 0; i < 8; ++i) {
    int row = row0 + (lane & 1) + (i & 2) + upper;
    int col = col0 + (i & 4) + (lane & 2) + (i & 1);
    at[i] = t.cd + row * 16 + col;
    x[i] = c[at[i]];
  }
  for (int k = 0; k < t.k; k += 4) {
    const u16* p = t.a + (row0 + lane % 4 + upper) * t.k + k;
    const u16* q = t.b + (col0 + lane % 4 + upper) * t.k + k;
    asm volatile(
        "mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32 {%0,%1,%2,%3,%4,%5,%6,%7}, {%8,%9},"
        " {%10,%11}, {%0,%1,%2,%3,%4,%5,%6,%7};"
        : "+f"(x[0]), "+f"(x[1]), "+f"(x[2]), "+f"(x[3]), "+f"(x[4]), "+f"(x[5]), "+f"(x[6]),
          "+f"(x[7])
        : "r"(pair(p)), "r"(pair(p + 2)), "r"(pair(q)), "r"(pair(q + 2)));
  }
  for (int i = 0; i < 8; ++i) d[at[i]] = x[i];
}
