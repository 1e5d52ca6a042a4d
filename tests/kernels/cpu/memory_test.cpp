#include <cstring>

#include "tests/kernels/cpu/op_test.h"

namespace q2::test {
namespace {

TEST(CpuOps, EverySlotIsFilled) {
    const Ops& ops = *cpu_ops();
    EXPECT_STREQ(ops.name, "cpu");
    EXPECT_EQ(ops.dense_dtype, Dtype::f32);
    const char* first = reinterpret_cast<const char*>(&ops.open);
    const char* end = reinterpret_cast<const char*>(&ops) + sizeof(Ops);
    for (int slot = 0; first < end; first += sizeof(void*), ++slot) {
        void* function = nullptr;
        std::memcpy(&function, first, sizeof function);
        EXPECT_NE(function, nullptr) << "slot " << slot;
    }
}

TEST(CpuMemory, AllocationIsAlignedAndMoves) {
    Context ctx;
    cpu::open(ctx, 0);
    for (size_t bytes : {size_t(0), size_t(1), size_t(256), size_t(1000)}) {
        void* data = cpu::allocate(ctx, bytes);
        ASSERT_NE(data, nullptr);
        EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % 256, 0u);
        std::vector<unsigned char> in(bytes, 0x5a), out(bytes);
        cpu::upload(ctx, data, in.data(), bytes);
        cpu::download(ctx, out.data(), data, bytes);
        EXPECT_EQ(in, out);
        cpu::zero(ctx, data, bytes);
        cpu::synchronize(ctx);
        cpu::download(ctx, out.data(), data, bytes);
        EXPECT_EQ(out, std::vector<unsigned char>(bytes, 0));
        cpu::release(ctx, data);
    }
    cpu::close(ctx);
}

TEST(CpuMemory, FailureNamesTheSize) {
    Context ctx;
    for (size_t bytes : {SIZE_MAX, SIZE_MAX / 2}) try {
            cpu::allocate(ctx, bytes);
            FAIL() << bytes;
        } catch (const Error& error) {
            EXPECT_EQ(error.code, Exit::device);
            EXPECT_NE(std::string(error.what()).find(std::to_string(bytes)), std::string::npos);
        }
}

TEST(CpuMemory, HeldGrowsWithWhatIsWritten) {
    Context ctx;
    const size_t bytes = size_t(64) << 20, before = cpu::memory(ctx).held;
    void* data = cpu::allocate(ctx, bytes);
    cpu::zero(ctx, data, bytes);
    const MemoryUse use = cpu::memory(ctx);
    cpu::release(ctx, data);
    EXPECT_NEAR(double(use.held - before), double(bytes), 0.05 * double(bytes));
    EXPECT_GE(use.peak, use.held);
    EXPECT_GT(use.total, use.peak);
    EXPECT_LT(cpu::memory(ctx).held, use.held - bytes / 2);
    EXPECT_GE(cpu::memory(ctx).peak + (1 << 20), use.peak);  // the kernel counts in batches
}

TEST(CpuMemory, DescriptionIsOneLine) {
    Context ctx;
    const std::string text = cpu::describe(ctx);
    EXPECT_EQ(text.rfind("CPU, ", 0), 0u) << text;
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
}

}  // namespace
}  // namespace q2::test
