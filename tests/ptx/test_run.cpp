// PTX texts run whole: where lanes part and meet, barriers of every kind, clusters, copies and products in flight, and messages of faults.
#include <gtest/gtest.h>

#include "emulator/ptx/run/run.hpp"
#include "tests/ptx/one_warp.hpp"

namespace ejk::ptx::test_run {
namespace {

// A kernel's shape; its text is `body` between a start and an end. At the start %r0 is the thread's number in its CTA, %r1 its CTA's, %r2
// the shared address of `memory`, %rd0 that of out. At the end %r10 goes to out[thread of the grid].
struct Shape {
  std::uint32_t threads = 32, ctas = 1, cluster = 1;
  Pace pace = Pace::eager;
  std::size_t dynamic_shared = 0;
  std::uint64_t seed = 1;
};

constexpr char start[] = R"(.version 8.3
.target sm_90a
.address_size 64
.visible .entry tested(.param .u64 tested_out) {
.reg .pred %p<10>;
.reg .b32 %r<40>;
.reg .f32 %f<10>;
.reg .b64 %rd<20>;
.shared .align 128 .b8 memory[4096];
ld.param.u64 %rd0, [tested_out];
cvta.to.global.u64 %rd0, %rd0;
mov.u32 %r0, %tid.x;
mov.u32 %r1, %ctaid.x;
mov.u32 %r2, memory;
mov.u32 %r10, 0;
)";
constexpr char end[] = R"(
mov.u32 %r3, %ntid.x;
mad.lo.s32 %r3, %r1, %r3, %r0;
mul.wide.u32 %rd1, %r3, 4;
add.s64 %rd1, %rd0, %rd1;
st.global.u32 [%rd1], %r10;
ret;
}
)";
// Takes a warp so long that others have run meanwhile. Each use has a label of its own.
std::string delay(const std::string& label) {
  return "mov.u32 %r39, 0;\n" + label + ":\nadd.s32 %r39, %r39, 1;\nsetp.lt.s32 %p9, %r39, 3000;\n@%p9 bra " + label + ";\n";
}

constexpr std::size_t out_words = 1024;  // and as many after them, to read

std::vector<std::uint32_t> run_text(const std::string& body, const Shape& shape = {}) {
  const auto program = parse(start + body + end);
  test::DeviceArray<std::uint32_t> out(2 * out_words);
  for (std::uint32_t i = 0; i < out_words; ++i) out.values[out_words + i] = 5000 + i;
  const std::uint64_t address = out.address();
  const void* arguments[] = {&address};
  Launch launch;
  launch.program = program.get(), launch.entry = &program->entries.at("tested");
  launch.grid = {shape.ctas, 1, 1}, launch.threads = {shape.threads, 1, 1}, launch.cluster = {shape.cluster, 1, 1};
  launch.dynamic_shared = shape.dynamic_shared, launch.pace = shape.pace, launch.seed = shape.seed;
  launch.arguments = {const_cast<void* const*>(arguments), 1};
  ptx::run(launch);
  return {out.values, out.values + out_words};
}

std::string message_of(const std::string& body, const Shape& shape = {}) {
  try {
    run_text(body, shape);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "no error";
}

#define EXPECT_SAYS(text, words) EXPECT_NE((text).find(words), std::string::npos) << (text)

TEST(PtxRun, LanesPartAndMeet) {
  const auto out = run_text(R"(
and.b32 %r4, %r0, 1;
setp.eq.s32 %p1, %r4, 1;
@%p1 bra odd;
activemask.b32 %r5;
bra.uni meet;
odd:
activemask.b32 %r5;
meet:
activemask.b32 %r6;
setp.eq.s32 %p2, %r6, -1;
selp.b32 %r10, %r5, 0, %p2;)");
  for (std::size_t i = 0; i < 32; ++i) EXPECT_EQ(out[i], i % 2 ? 0xaaaaaaaau : 0x55555555u) << i;
}

TEST(PtxRun, LanesLeaveALoopOneAfterTheOther) {
  const auto out = run_text(R"(
mov.u32 %r4, 0;
again:
add.s32 %r10, %r10, %r4;
add.s32 %r4, %r4, 1;
setp.le.u32 %p1, %r4, %r0;
@%p1 bra again;
activemask.b32 %r6;
setp.eq.s32 %p2, %r6, -1;
@!%p2 mov.u32 %r10, 9999;)");
  for (std::uint32_t i = 0; i < 32; ++i) EXPECT_EQ(out[i], i * (i + 1) / 2) << i;
}

TEST(PtxRun, PartsInsideParts) {
  const auto out = run_text(R"(
setp.ge.u32 %p1, %r0, 16;
@%p1 bra others;
and.b32 %r4, %r0, 3;
and.b32 %r5, %r0, 1;
setp.eq.s32 %p2, %r5, 1;
again:
@%p2 bra odd;
add.s32 %r10, %r10, 1;
bra.uni both;
odd:
add.s32 %r10, %r10, 10;
both:
sub.s32 %r4, %r4, 1;
setp.ge.s32 %p3, %r4, 0;
@%p3 bra again;
activemask.b32 %r6;
setp.ne.s32 %p4, %r6, 65535;
@%p4 mov.u32 %r10, 9999;
bra.uni meet;
others:
mov.u32 %r10, 7;
meet:
activemask.b32 %r6;
setp.ne.s32 %p4, %r6, -1;
@%p4 mov.u32 %r10, 8888;)");
  for (std::uint32_t i = 0; i < 32; ++i) EXPECT_EQ(out[i], i >= 16 ? 7u : (i % 4 + 1) * (i % 2 ? 10 : 1)) << i;
}

// Warp 0 exits, and half of warp 1; the rest meets, the last warp late.
TEST(PtxRun, BarriersCountThoseWhoHaveNotExited) {
  const auto out = run_text(R"(
setp.lt.u32 %p1, %r0, 48;
@%p1 exit;
shl.b32 %r4, %r0, 2;
add.s32 %r4, %r2, %r4;
setp.lt.u32 %p2, %r0, 96;
@%p2 bra write;
)" + delay("late") + R"(
write:
st.shared.u32 [%r4], %r0;
bar.sync 0;
xor.b32 %r5, %r4, 256;
ld.shared.u32 %r10, [%r5];)",
                            {.threads = 128});
  for (std::uint32_t i = 0; i < 48; ++i) EXPECT_EQ(out[i], 0u) << i;
  for (std::uint32_t i = 48; i < 64; ++i) EXPECT_EQ(out[i], i + 64) << i;
  for (std::uint32_t i = 112; i < 128; ++i) EXPECT_EQ(out[i], i - 64) << i;
}

// Warp 2 takes no part.
TEST(PtxRun, NamedBarriersCountTheirThreads) {
  const std::string text = R"(
shr.u32 %r4, %r0, 5;
setp.eq.s32 %p1, %r4, 2;
@%p1 bra done;
setp.eq.s32 %p2, %r4, 1;
@%p2 bra reader;
)" + delay("late") + R"(
st.shared.u32 [%r2], 77;
bar.arrive 1, 64;
mov.u32 %r10, 5;
bra.uni done;
reader:
bar.sync 1, 64;
ld.shared.u32 %r10, [%r2];
done:)";
  const auto out = run_text(text, {.threads = 96});
  EXPECT_EQ(out[0], 5u);
  EXPECT_EQ(out[32], 77u);
  EXPECT_EQ(out[64], 0u);
  auto other = text;
  other.replace(other.find("arrive 1, 64"), 12, "arrive 1, 96");
  EXPECT_SAYS(message_of(other, {.threads = 96}), "threads come to one barrier as one for");
}

TEST(PtxRun, BarriersReduceVotes) {
  const auto out = run_text(R"(
setp.eq.s32 %p1, %r0, 40;
bar.red.or.pred %p2, 0, %p1;
@%p2 add.s32 %r10, %r10, 1;
bar.red.and.pred %p2, 0, %p1;
@%p2 add.s32 %r10, %r10, 10;
setp.ge.u32 %p3, %r0, 64;
bar.red.and.pred %p2, 0, !%p3;
@%p2 add.s32 %r10, %r10, 100;
setp.eq.s32 %p1, %r0, 999;
bar.red.or.pred %p2, 0, %p1;
@%p2 add.s32 %r10, %r10, 1000;)",
                            {.threads = 64});
  for (std::uint32_t i = 0; i < 64; ++i) EXPECT_EQ(out[i], 101u) << i;
}

TEST(PtxRun, LanesMeetInDifferentPlaces) {
  const auto out = run_text(R"(
setp.lt.u32 %p1, %r0, 16;
@%p1 bra write;
bar.warp.sync -1;
ld.shared.u32 %r10, [%r2];
bra.uni done;
write:
)" + delay("late") + R"(
st.shared.u32 [%r2], 77;
bar.warp.sync -1;
mov.u32 %r10, 5;
done:)");
  for (std::uint32_t i = 0; i < 32; ++i) EXPECT_EQ(out[i], i < 16 ? 5u : 77u) << i;
}

TEST(PtxRun, ClustersWriteIntoEachOther) {
  const auto out = run_text(R"(
mov.u32 %r4, %cluster_ctarank;
xor.b32 %r5, %r4, 1;
shl.b32 %r6, %r0, 2;
add.s32 %r6, %r2, %r6;
mapa.shared::cluster.u32 %r7, %r6, %r5;
mad.lo.s32 %r8, %r1, 100, %r0;
setp.eq.s32 %p1, %r4, 0;
@%p1 bra write;
)" + delay("late") + R"(
write:
st.shared::cluster.u32 [%r7], %r8;
barrier.cluster.arrive.release.aligned;
barrier.cluster.wait.acquire.aligned;
ld.shared.u32 %r10, [%r6];)",
                            {.ctas = 4, .cluster = 2});
  for (std::uint32_t i = 0; i < 128; ++i) EXPECT_EQ(out[i], (i / 32 ^ 1) * 100 + i % 32) << i;
}

// Four rounds: a word, full and empty again.
TEST(PtxRun, WarpsHandAWordOverBehindBarriers) {
  const std::string wait = R"(:
mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r5], %r6;
@!%p1 bra )";
  const auto out = run_text(R"(
setp.ne.s32 %p2, %r0, 0;
@%p2 bra ready;
mbarrier.init.shared::cta.b64 [%r2], 32;
mbarrier.init.shared::cta.b64 [%r2+8], 32;
ready:
bar.sync 0;
mov.u32 %r4, 0;
setp.ge.u32 %p3, %r0, 32;
@%p3 bra consume;
produce:
add.s32 %r5, %r2, 8;
and.b32 %r6, %r4, 1;
xor.b32 %r6, %r6, 1;
empty)" + wait + "empty;\n" + delay("late") +
                                R"(
mad.lo.s32 %r7, %r4, 10, 3;
st.shared.u32 [%r2+64], %r7;
mbarrier.arrive.shared::cta.b64 _, [%r2];
add.s32 %r4, %r4, 1;
setp.lt.s32 %p4, %r4, 4;
@%p4 bra produce;
bra.uni done;
consume:
mov.u32 %r5, %r2;
and.b32 %r6, %r4, 1;
full)" + wait + R"(full;
ld.shared.u32 %r7, [%r2+64];
add.s32 %r10, %r10, %r7;
mbarrier.arrive.shared::cta.b64 _, [%r2+8];
add.s32 %r4, %r4, 1;
setp.lt.s32 %p4, %r4, 4;
@%p4 bra consume;
done:)",
                            {.threads = 64});
  for (std::uint32_t i = 0; i < 64; ++i) EXPECT_EQ(out[i], i < 32 ? 0u : 72u) << i;
}

// A word as it is before the copy's barrier is waited for, in lane 0; after it in lane 1.
TEST(PtxRun, CopiesComeEarlyOrLate) {
  const std::string text = R"(
setp.ne.s32 %p2, %r0, 0;
st.shared.u32 [%r2+128], 1;
bar.warp.sync -1;
@%p2 bra ready;
mbarrier.init.shared::cta.b64 [%r2], 1;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 64;
add.s32 %r4, %r2, 128;
add.s64 %rd2, %rd0, 4096;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r4], [%rd2], 64, [%r2];
ready:
ld.shared.u32 %r10, [%r2+128];
@!%p2 bra done;
wait:
mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r2], 0;
@!%p1 bra wait;
ld.shared.u32 %r10, [%r2+128];
done:)";
  const auto early = run_text(text), late = run_text(text, {.pace = Pace::lazy});
  EXPECT_EQ(early[0], 5000u);
  EXPECT_EQ(late[0], 1u);
  EXPECT_EQ(early[1], 5000u);
  EXPECT_EQ(late[1], 5000u);
}

// Ones times ones, 16 deep; %f0 was 5. Whole numbers of it, before the wait times 100.
TEST(PtxRun, ProductsComeEarlyOrLate) {
  const std::string text = R"(
shl.b32 %r4, %r0, 5;
add.s32 %r4, %r2, %r4;
mov.u32 %r5, 0x3f803f80;
st.shared.v4.u32 [%r4], {%r5, %r5, %r5, %r5};
st.shared.v4.u32 [%r4+16], {%r5, %r5, %r5, %r5};
fence.proxy.async.shared::cta;
bar.sync 0;
shr.u32 %r6, %r2, 4;
cvt.u64.u32 %rd2, %r6;
or.b64 %rd2, %rd2, 0x0000001000080000;
mov.f32 %f0, 0f40A00000;
mov.f32 %f1, %f0;
mov.f32 %f2, %f0;
mov.f32 %f3, %f0;
setp.ne.s32 %p1, 0, 0;
wgmma.fence.sync.aligned;
wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f0, %f1, %f2, %f3}, %rd2, %rd2, %p1, 1, 1, 0, 0;
wgmma.commit_group.sync.aligned;
cvt.rzi.u32.f32 %r7, %f0;
wgmma.wait_group.sync.aligned 0;
cvt.rzi.u32.f32 %r8, %f0;
mad.lo.s32 %r10, %r7, 100, %r8;)";
  const auto early = run_text(text, {.threads = 128}), late = run_text(text, {.threads = 128, .pace = Pace::lazy});
  for (std::size_t i = 0; i < 128; ++i) {
    EXPECT_EQ(early[i], 1616u) << i;
    EXPECT_EQ(late[i], 516u) << i;
  }
}

// The text of a product, with all that it needs before; %rd2 describes both factors.
constexpr char product[] = R"(
shr.u32 %r6, %r2, 4;
cvt.u64.u32 %rd2, %r6;
or.b64 %rd2, %rd2, 0x0000001000080000;
mov.f32 %f0, 0f00000000;
mov.f32 %f1, %f0;
mov.f32 %f2, %f0;
mov.f32 %f3, %f0;
setp.ne.s32 %p1, 0, 0;
wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f0, %f1, %f2, %f3}, %rd2, %rd2, %p1, 1, 1, 0, 0;
)";

TEST(PtxRun, TellsOfProductsThatNobodyWaitedFor) {
  const std::string commits = "wgmma.commit_group.sync.aligned;\n", waits = "wgmma.wait_group.sync.aligned 0;\n";
  for (const auto pace : {Pace::eager, Pace::lazy}) {
    const Shape shape{.threads = 128, .pace = pace};
    EXPECT_SAYS(message_of(product, shape), "products of wgmma that it has not waited for");
    EXPECT_SAYS(message_of(product + commits, shape), "products of wgmma that it has not waited for");
    EXPECT_SAYS(message_of(product + waits, shape), "products of wgmma that it has not waited for");
    EXPECT_SAYS(message_of(product + commits + "setp.lt.s32 %p2, %r0, 32;\n@%p2 bra done;\n" + waits + "done:", shape),
                "products of wgmma that it has not waited for");
    EXPECT_EQ(message_of(product + commits + waits, shape), "no error");
  }
}

// Lane 0 stores 16 bytes.
constexpr char bulk_store[] = R"(
setp.ne.s32 %p2, %r0, 0;
@%p2 bra done;
cp.async.bulk.global.shared::cta.bulk_group [%rd0], [%r2], 16;
)";

TEST(PtxRun, TellsOfBulkStoresThatNobodyWaitedFor) {
  const std::string commits = "cp.async.bulk.commit_group;\n", waits = "cp.async.bulk.wait_group.read 0;\n", done = "done:";
  const Shape late{.pace = Pace::lazy};
  EXPECT_SAYS(message_of(bulk_store + done, late), "bulk stores that it has not waited for");
  EXPECT_SAYS(message_of(bulk_store + commits + done, late), "bulk stores that it has not waited for");
  EXPECT_SAYS(message_of(bulk_store + commits + "cp.async.bulk.wait_group.read 1;\n" + done, late),
              "bulk stores that it has not waited for");
  EXPECT_EQ(message_of(bulk_store + commits + waits + commits + done, late), "no error");
}

TEST(PtxRun, TellsOfCopiesIntoWhatHasEnded) {
  const std::string starts = R"(
setp.ne.s32 %p2, %r0, 0;
@%p2 bra done;
mbarrier.init.shared::cta.b64 [%r2], 1;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 64;
add.s32 %r4, %r2, 128;
add.s64 %rd2, %rd0, 4096;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r4], [%rd2], 64, [%r2];
)";
  const std::string waits = "wait:\nmbarrier.try_wait.parity.shared::cta.b64 %p1, [%r2], 0;\n@!%p1 bra wait;\n";
  const auto text = message_of(starts + "done:", {.pace = Pace::lazy});
  for (const char* words : {"CTA (0, 0, 0) has ended", "nobody waited for", "cp.async.bulk"}) EXPECT_SAYS(text, words);
  EXPECT_EQ(message_of(starts + waits + "done:", {.pace = Pace::lazy}), "no error");
}

TEST(PtxRun, TellsWhereAFaultIs) {
  const auto text = message_of("setp.ne.s32 %p1, %r0, 37;\n@%p1 bra done;\nst.global.u32 [%rd0+8192], 1;\ndone:", {.threads = 64});
  for (const char* words : {"tested", "CTA (0, 0, 0)", "warp 1", "line 18", "st.global.u32", "in no allocation or not within one"})
    EXPECT_SAYS(text, words);
}

TEST(PtxRun, TellsFaultsOfMemory) {
  EXPECT_SAYS(message_of("ld.shared.u32 %r10, [%r2+4096];"), "out of bounds");
  EXPECT_SAYS(message_of("ld.shared.u32 %r10, [%r2+2];"), "not aligned, expected a multiple of 4");
  EXPECT_SAYS(message_of("ld.global.u64 %rd3, [%rd0+4];"), "not aligned, expected a multiple of 8");
  EXPECT_SAYS(message_of("mapa.shared::cluster.u32 %r4, %r2, 1;"), "mapa");
}

TEST(PtxRun, TellsWhereThreadsWaitForEver) {
  const auto text = message_of("bar.sync 3, 64;");
  for (const char* words : {"no thread goes on", "warp 0", "line 16", "bar.sync 3, 64"}) EXPECT_SAYS(text, words);
  const auto more = message_of(R"(
mbarrier.init.shared::cta.b64 [%r2], 33;
mbarrier.arrive.shared::cta.b64 _, [%r2];
wait:
mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r2], 0;
@!%p1 bra wait;)");
  EXPECT_SAYS(more, "no thread goes on");
}

TEST(PtxRun, TellsOfTrapsAndOfLaunchesThatDoNotFit) {
  EXPECT_SAYS(message_of("trap;"), "the kernel stopped itself");
  EXPECT_SAYS(message_of("", {.dynamic_shared = 232448}), "bytes of shared memory a CTA, expected at most 232448");
  EXPECT_SAYS(message_of("", {.threads = 1056}), "a CTA of 1056 threads");
  EXPECT_SAYS(message_of("", {.ctas = 3, .cluster = 2}), "a grid of 3 CTAs and clusters of 2");
  EXPECT_EQ(message_of("", {.dynamic_shared = 200000}), "no error");
}

}  // namespace
}  // namespace ejk::ptx::test_run
