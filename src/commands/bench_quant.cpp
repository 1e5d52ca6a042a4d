#include "commands/bench_quant.h"

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>

#include "linear/linear.h"
#include "linear/recipes.h"
#include "ops/backend.h"

namespace q2 {
namespace {

using Json = nlohmann::ordered_json;

struct QuantBenchOptions {
    std::string backend = "auto";
    int64_t rows = 0, cols = 0, product = 0, repeats = 20;
    bool json = false;
};

struct Shape {
    int64_t rows, cols;
};

/// Against the bars, and the linear layers of the 30M and 1.1B models at the micro-batches they run with.
const std::vector<Shape> kDeviceShapes = {{16384, 4096}, {16384, 2048}, {65536, 640}},
                         kHostShapes = {{256, 512}};

/// Seconds a call: three calls to warm up, then `repeats` queued together.
template <class Call>
double seconds_of(Context& ctx, int64_t repeats, Call call) {
    for (int i = 0; i < 3; ++i) call();
    ctx.ops->synchronize(ctx);
    const auto start = std::chrono::steady_clock::now();
    for (int64_t i = 0; i < repeats; ++i) call();
    ctx.ops->synchronize(ctx);
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    return taken.count() / double(repeats);
}

/// Memory of the backend that lives as long as the bench of one shape.
class Buffers {
  public:
    explicit Buffers(Context& ctx) : ctx_(ctx) {}
    void* take(size_t bytes) {
        memory_.push_back(std::make_unique<DeviceMemory>(ctx_, bytes));
        return memory_.back()->data();
    }
    Tensor tensor(Dtype dtype, int64_t rows, int64_t cols) {
        return {take(size_t(rows * cols) * size_of(dtype)), dtype, rows, cols};
    }
    /// Normal deviates: 2^20 of them, over and over.
    Tensor normals(Dtype dtype, int64_t rows, int64_t cols) {
        const Tensor to = tensor(dtype, rows, cols);
        constexpr int64_t kPeriod = int64_t(1) << 20;
        std::mt19937 generator(1);
        std::normal_distribution<float> normal;
        std::vector<float> values(kPeriod);
        for (float& x : values) x = normal(generator);
        std::vector<Bf16> narrow;
        for (const float x : values) narrow.push_back(to_bf16(x));
        const void* host = dtype == Dtype::f32 ? static_cast<const void*>(values.data()) : narrow.data();
        for (int64_t done = 0; done < to.size(); done += kPeriod)
            ctx_.ops->upload(ctx_, static_cast<char*>(to.data) + size_t(done) * size_of(dtype), host,
                             size_t(std::min(kPeriod, to.size() - done)) * size_of(dtype));
        return to;
    }
    /// An operand with a dense form, and codes if asked for.
    Quantized operand(int64_t rows, int64_t inner, bool codes) {
        Quantized q{.rows = rows, .inner = inner};
        if (codes)
            q.codes = tensor(Dtype::u8, rows, inner / 2), q.scales = tensor(Dtype::u8, rows, inner / kBlock);
        q.tensor_scale = tensor(Dtype::f32, 1, 1);
        q.dense = tensor(ctx_.ops->dense_dtype, rows, inner);
        return q;
    }

  private:
    Context& ctx_;
    std::vector<std::unique_ptr<DeviceMemory>> memory_;
};

constexpr double kCodeBytes = 0.5 + 1.0 / kBlock;  // of a code and its share of a block's scale

/// What one shape's ops read and write, and the lines of the report.
class ShapeBench {
  public:
    ShapeBench(Context& ctx, Shape shape, int64_t repeats, double copy_rate)
        : ctx_(ctx),
          shape_(shape),
          repeats_(repeats),
          copy_rate_(copy_rate),
          buffers_(ctx),
          scratch_(ctx, std::max(ctx.ops->quantize_scratch(shape.rows, shape.cols),
                                 ctx.ops->quantize_scratch(shape.cols, padded()))),
          state_(static_cast<StepState*>(buffers_.take(sizeof(StepState)))),
          amax_(static_cast<Amax*>(buffers_.take(sizeof(Amax)))) {
        const StepState step{.seed = 1};
        const Amax amax{bits_of(6.0f)};
        ctx.ops->upload(ctx, state_, &step, sizeof step);
        ctx.ops->upload(ctx, amax_, &amax, sizeof amax);
        x_ = buffers_.normals(Dtype::bf16, shape.rows, shape.cols);
        w_ = buffers_.normals(Dtype::f32, shape.rows, shape.cols);
        straight_ = buffers_.operand(shape.rows, shape.cols, true);
        transposed_ = buffers_.operand(shape.cols, padded(), false);
    }

    Json lines() {
        forward();
        backward();
        return std::move(lines_);
    }

  private:
    int64_t padded() const { return (shape_.rows + 127) / 128 * 128; }
    double dense_bytes() const { return double(size_of(ctx_.ops->dense_dtype)); }
    Address address(Gemm gemm, uint32_t operand) const {
        return {.state = state_, .layer = 1, .gemm = gemm, .operand = operand};
    }
    Quantized without_codes(Quantized q) const {
        q.codes = q.scales = {};
        return q;
    }

    template <class Call>
    void line(const std::string& op, double bytes_an_element, Call call) {
        const double seconds = seconds_of(ctx_, repeats_, call);
        const double bytes = bytes_an_element * double(shape_.rows * shape_.cols), rate = bytes / seconds;
        lines_.push_back({{"op", op},
                          {"rows", shape_.rows},
                          {"cols", shape_.cols},
                          {"seconds", seconds},
                          {"bytes", bytes},
                          {"bytes_per_s", rate},
                          {"of_copy", rate / copy_rate_}});
    }

    void quantise(const std::string& op, double bytes, const Quantized& out, const Operand& source,
                  const Amax* amax, const QuantSpec& spec, const Rotation& rotation, const Address& at) {
        line(op, bytes, [&] { ctx_.ops->quantize(ctx_, out, source, amax, spec, rotation, at); });
    }

    /// X with its amax known, into what the product reads and what the backward keeps; W without.
    void forward() {
        const double out = dense_bytes() + kCodeBytes;
        for (const char* recipe : {"nvidia", "quartet2", "quartet2_plus"}) {
            const GemmSpec& fprop = find_recipe(recipe).fprop;
            quantise(concat("X of ", recipe), 2 + out, straight_, {.dense = x_}, amax_, fprop.a, {},
                     address(kFprop, 0));
            if (fprop.b.grid == Grid::block || shape_.rows % kBlock == 0)
                quantise(concat("W of ", recipe), 4 + 4 + dense_bytes(), without_codes(straight_),
                         {.dense = w_}, nullptr, fprop.b, {}, address(kFprop, 1));
        }
    }

    /// E both ways; saved X of its own codes.
    void backward() {
        const QuantSpec saved = find_recipe("quartet2").fprop.a;
        ctx_.ops->quantize(ctx_, straight_, {.dense = x_}, amax_, saved, {}, address(kFprop, 0));
        const Quantized codes = straight_,
                        rows = without_codes(buffers_.operand(shape_.rows, shape_.cols, false));
        for (const char* name : {"quartet2", "quartet2_onepass", "quartet2_plus", "nvidia", "tetrajet_v2"}) {
            const Recipe recipe = find_recipe(name);
            line(concat("E of ", name, ", both ways"), 2 + 2 + 2 * dense_bytes(), [&] {
                ctx_.ops->quantize_gradient(ctx_, &rows, &transposed_, x_, recipe.dgrad, recipe.wgrad,
                                            address(kDgrad, 0), address(kWgrad, 0));
            });
            const bool from_codes = wgrad_reads_codes(recipe);
            const Operand source = from_codes ? Operand{.q = &codes, .transposed = true}
                                              : Operand{.dense = x_, .transposed = true};
            quantise(concat("X again of ", name), 2 * (from_codes ? kCodeBytes : 2) + dense_bytes(),
                     transposed_, source, nullptr, recipe.wgrad.b, recipe.wgrad.rotation, address(kWgrad, 1));
        }
    }

    Context& ctx_;
    Shape shape_;
    int64_t repeats_;
    double copy_rate_;
    Buffers buffers_;
    LentScratch scratch_;
    StepState* state_;
    Amax* amax_;
    Tensor x_, w_;
    Quantized straight_, transposed_;
    Json lines_ = Json::array();
};

/// Bytes a second of a copy within the device, those read and those written.
double copy_rate(Context& ctx, size_t bytes, int64_t repeats) {
    const DeviceMemory from(ctx, bytes), to(ctx, bytes);
    ctx.ops->zero(ctx, from.data(), bytes);
    return 2.0 * double(bytes) /
           seconds_of(ctx, repeats, [&] { ctx.ops->copy(ctx, to.data(), from.data(), bytes); });
}

/// FLOPs a second of a bfloat16 product of size^3.
double product_rate(Context& ctx, int64_t size, int64_t repeats) {
    const LentScratch scratch(ctx, ctx.ops->matmul_scratch(size, size, size));
    Buffers buffers(ctx);
    const Tensor a = buffers.normals(Dtype::bf16, size, size), b = buffers.normals(Dtype::bf16, size, size),
                 out = buffers.tensor(Dtype::bf16, size, size);
    return 2.0 * double(size) * double(size) * double(size) /
           seconds_of(ctx, repeats, [&] { ctx.ops->matmul(ctx, out, {.dense = a}, {.dense = b}, false); });
}

Json measure(Context& ctx, const QuantBenchOptions& o) {
    const bool gpu = ctx.ops == cuda_ops();
    const int64_t product = o.product ? o.product : gpu ? 8192 : 512;
    const double copy = copy_rate(ctx, size_t(gpu ? 1024 : 64) << 20, o.repeats);
    Json report = {{"device", ctx.ops->describe(ctx)},
                   {"copy_bytes_per_s", copy},
                   {"product", product},
                   {"product_flops_per_s", product_rate(ctx, product, o.repeats)},
                   {"ops", Json::array()}};
    const std::vector<Shape> given = {{o.rows, o.cols}};
    for (const Shape& shape : o.rows ? given : gpu ? kDeviceShapes : kHostShapes)
        for (Json& line : ShapeBench(ctx, shape, o.repeats, copy).lines())
            report["ops"].push_back(std::move(line));
    return report;
}

void print(const Json& r) {
    std::printf("%s\ncopy %.3g TB/s, product of %lld^3 %.3g TFLOP/s\n%-34s %14s %10s %9s %9s\n",
                r["device"].get<std::string>().c_str(), r["copy_bytes_per_s"].get<double>() / 1e12,
                r["product"].get<long long>(), r["product_flops_per_s"].get<double>() / 1e12, "op", "shape",
                "us", "TB/s", "of copy");
    for (const Json& op : r["ops"])
        std::printf("%-34s %6lld x %5lld %10.1f %9.3g %8.1f%%\n", op["op"].get<std::string>().c_str(),
                    op["rows"].get<long long>(), op["cols"].get<long long>(),
                    1e6 * op["seconds"].get<double>(), op["bytes_per_s"].get<double>() / 1e12,
                    1e2 * op["of_copy"].get<double>());
}

int run_bench_quant(const QuantBenchOptions& o) {
    check((o.rows == 0) == (o.cols == 0), Exit::usage, "bench quant: --rows and --cols belong together");
    check(o.cols % 128 == 0, Exit::usage, "bench quant: --cols ", o.cols, " is not a multiple of 128");
    Backend backend(o.backend, 0);
    const Json report = measure(backend.context(), o);
    if (o.json)
        std::puts(report.dump().c_str());
    else
        print(report);
    return int(Exit::ok);
}

}  // namespace

void add_bench_quant(CLI::App& bench, std::function<int()>& run) {
    const auto options = std::make_shared<QuantBenchOptions>();
    CLI::App* command = bench.add_subcommand(
        "quant", "The quantisers' bytes a second and the fraction of the copy rate, on random matrices");
    command->add_option("--backend", options->backend, "auto, cpu or cuda")
        ->check(CLI::IsMember({"auto", "cpu", "cuda"}))
        ->capture_default_str();
    const auto size = CLI::Range(int64_t(1), int64_t(1) << 24);
    command->add_option("--rows", options->rows, "Tokens of the matrix; default: a few known shapes")
        ->check(size);
    command->add_option("--cols", options->cols, "Its width, a multiple of 128")->check(size);
    command->add_option("--product", options->product, "N of the N^3 product; default: 8192, CPU 512")
        ->check(size);
    command->add_option("--repeats", options->repeats, "Calls to time together")
        ->check(CLI::Range(int64_t(1), int64_t(1) << 20))
        ->capture_default_str();
    command->add_flag("--json", options->json, "Print one JSON object");
    command->callback([options, &run] { run = [options] { return run_bench_quant(*options); }; });
}

}  // namespace q2
