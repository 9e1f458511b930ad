#include "formats/torch_bin_pickle.h"

#include <fmt/core.h>

#include <array>
#include <cstring>
#include <string>
#include <unordered_map>
#include <utility>

#include "formats/names.h"

namespace carat::torch_bin {
namespace {

/// Opcodes as numbered by Python's pickletools. Those that are not here are refused.
enum class Op : std::uint8_t {
  mark = '(', stop = '.', pop = '0', pop_mark = '1', duplicate = '2', persistent_id = 'Q', reduce = 'R', build = 'b',
  global = 'c', instance = 'i', none = 'N', empty_dict = '}', empty_list = ']', empty_tuple = ')', append = 'a',
  appends = 'e', set_item = 's', set_items = 'u', tuple = 't', get = 'h', long_get = 'j', put = 'q', long_put = 'r',
  int1 = 'K', int2 = 'M', int4 = 'J', real = 'G', unicode = 'X', short_string = 'U', string = 'T',
  protocol = 0x80, tuple1 = 0x85, tuple2 = 0x86, tuple3 = 0x87, true_value = 0x88, false_value = 0x89, long1 = 0x8a,
  short_unicode = 0x8c, unicode8 = 0x8d, stack_global = 0x93, memoize = 0x94, frame = 0x95,
};

constexpr std::array<StorageType, 13> kStorageTypes{{
    {"FloatStorage", DType::f32},      {"HalfStorage", DType::f16},    {"BFloat16Storage", DType::bf16},
    {"DoubleStorage", DType::f64},     {"CharStorage", DType::i8},     {"ShortStorage", DType::i16},
    {"IntStorage", DType::i32},        {"LongStorage", DType::i64},    {"ByteStorage", std::nullopt},
    {"BoolStorage", std::nullopt},     {"QInt8Storage", std::nullopt}, {"ComplexFloatStorage", std::nullopt},
    {"ComplexDoubleStorage", std::nullopt},
}};

/// On the stack in place of a value.
constexpr std::uint32_t kMark = 0xffffffff;
constexpr std::uint64_t kMostValues = 1 << 26;

class Machine {
 public:
  Machine(std::span<const std::byte> bytes, EntryMemory& memory) : bytes_(bytes), memory_(memory) {}

  Result<Pickle> run() {
    while (true) {
      op_at_ = at_;
      CARAT_ASSIGN(const auto op, number<std::uint8_t>());
      if (static_cast<Op>(op) == Op::stop) break;
      CARAT_TRY(step(static_cast<Op>(op)));
    }
    CARAT_ASSIGN(pickle_.root, pop());
    return std::move(pickle_);
  }

 private:
  Status error(std::string_view what) const { return invalid(fmt::format("byte {}: {}", op_at_, what)); }

  Result<std::span<const std::byte>> take(std::uint64_t count) {
    if (count > bytes_.size() - at_) {
      return error(fmt::format("{} bytes are taken, but the pickle ends at byte {}", count, bytes_.size()));
    }
    const auto taken = bytes_.subspan(at_, static_cast<std::size_t>(count));
    at_ += static_cast<std::size_t>(count);
    return taken;
  }

  template <typename T>
  Result<T> number() {
    CARAT_ASSIGN(const auto raw, take(sizeof(T)));
    T value{};
    std::memcpy(&value, raw.data(), sizeof(T));
    return value;
  }

  /// Up to the next newline, which is taken too.
  Result<std::string_view> line() {
    const std::string_view rest(reinterpret_cast<const char*>(bytes_.data()) + at_, bytes_.size() - at_);
    const std::size_t length = rest.find('\n');
    if (length == std::string_view::npos) return error("a name does not end");
    at_ += length + 1;
    return rest.substr(0, length);
  }

  Status push(std::uint32_t value) {
    CARAT_TRY(memory_.add(2 * sizeof value));
    stack_.push_back(value);
    return ok_status();
  }

  Result<std::uint32_t> create(Value value) {
    // Twice: a growing vector holds its old block too.
    CARAT_TRY(memory_.add(2 * sizeof(Value) + 2 * sizeof(std::uint32_t) * value.items.size()));
    if (pickle_.values.size() >= kMostValues) return error("too many objects");
    pickle_.values.push_back(std::move(value));
    return static_cast<std::uint32_t>(pickle_.values.size() - 1);
  }
  Status push_new(Value value) {
    CARAT_ASSIGN(const std::uint32_t made, create(std::move(value)));
    return push(made);
  }
  Status push_integer(std::int64_t integer, Kind kind = Kind::integer) {
    return push_new({.kind = kind, .integer = integer});
  }
  Status push_text(std::uint64_t length) {
    CARAT_ASSIGN(const auto raw, take(length));
    return push_new({.kind = Kind::text, .text = {reinterpret_cast<const char*>(raw.data()), raw.size()}});
  }

  Result<std::uint32_t> pop() {
    if (stack_.empty() || stack_.back() == kMark) return error("an object is taken from an empty stack");
    const std::uint32_t value = stack_.back();
    stack_.pop_back();
    return value;
  }
  Result<std::uint32_t> top() {
    if (stack_.empty() || stack_.back() == kMark) return error("an object is taken from an empty stack");
    return stack_.back();
  }
  /// What lies above the last mark; the mark goes too.
  Result<std::vector<std::uint32_t>> pop_to_mark() {
    std::size_t begin = stack_.size();
    while (begin > 0 && stack_[begin - 1] != kMark) --begin;
    if (begin == 0) return error("the stack holds no mark");
    std::vector<std::uint32_t> items(stack_.begin() + static_cast<std::ptrdiff_t>(begin), stack_.end());
    stack_.resize(begin - 1);
    return items;
  }
  Result<std::vector<std::uint32_t>> pop_some(std::size_t count) {
    std::vector<std::uint32_t> items(count);
    for (std::size_t i = count; i > 0; --i) {
      CARAT_ASSIGN(items[i - 1], pop());
    }
    return items;
  }

  Value& value(std::uint32_t index) { return pickle_.values[index]; }
  /// Item `index` of a tuple, when it is of `kind`; nullptr otherwise.
  Value* item(const Value& tuple, std::size_t index, Kind kind) {
    if (tuple.kind != Kind::tuple || index >= tuple.items.size()) return nullptr;
    Value& found = value(tuple.items[index]);
    return found.kind == kind ? &found : nullptr;
  }

  Status extend_top(const std::vector<std::uint32_t>& items, Kind kind) {
    CARAT_ASSIGN(const std::uint32_t target, top());
    if (value(target).kind != kind) {
      return error(fmt::format("items are added to {}, expected {}", name(value(target).kind), name(kind)));
    }
    if (kind == Kind::dictionary && items.size() % 2 != 0) return error("a key without a value");
    CARAT_TRY(memory_.add(2 * sizeof(std::uint32_t) * items.size()));
    std::vector<std::uint32_t>& into = value(target).items;
    into.insert(into.end(), items.begin(), items.end());
    return ok_status();
  }

  Status put(std::uint32_t slot) {
    constexpr std::uint64_t kNodeBytes = 64;
    CARAT_ASSIGN(const std::uint32_t kept, top());
    CARAT_TRY(memory_.add(kNodeBytes));
    memo_.insert_or_assign(slot, kept);
    return ok_status();
  }
  Status get(std::uint32_t slot) {
    const auto found = memo_.find(slot);
    if (found == memo_.end()) return error(fmt::format("memo {} is empty", slot));
    return push(found->second);
  }

  /// The one gate: what is not in this list has no meaning here.
  Status push_callable(std::string_view module, std::string_view function) {
    Value made{.kind = Kind::callable};
    if (module == "torch._utils" && function == "_rebuild_tensor_v2") {
      made.callable = Callable::rebuild_tensor;
    } else if (module == "torch._utils" && function == "_rebuild_parameter") {
      made.callable = Callable::rebuild_parameter;
    } else if (module == "collections" && function == "OrderedDict") {
      made.callable = Callable::ordered_dict;
    } else {
      made.callable = Callable::storage_type;
      for (const StorageType& type : kStorageTypes) {
        if (module == "torch" && function == type.name) made.storage_type = &type;
      }
      if (made.storage_type == nullptr) {
        return invalid(fmt::format("byte {}: the callable '{}.{}' is not allowed: only what builds tensors is", op_at_,
                                   escaped(module), escaped(function)));
      }
    }
    return push_new(std::move(made));
  }

  Status stack_global() {
    CARAT_ASSIGN(const std::uint32_t function, pop());
    CARAT_ASSIGN(const std::uint32_t module, pop());
    if (value(function).kind != Kind::text || value(module).kind != Kind::text) {
      return error("a callable's name is not a string");
    }
    return push_callable(value(module).text, value(function).text);
  }

  Status reduce() {
    CARAT_ASSIGN(const std::uint32_t arguments, pop());
    CARAT_ASSIGN(const std::uint32_t function, pop());
    if (value(function).kind != Kind::callable || value(arguments).kind != Kind::tuple) {
      return error(fmt::format("{} is called", name(value(function).kind)));
    }
    const Value& given = value(arguments);
    switch (value(function).callable) {
      case Callable::ordered_dict:
        if (!given.items.empty()) return error("OrderedDict with arguments");
        return push_new({.kind = Kind::dictionary});
      case Callable::rebuild_parameter:  // (tensor, requires_grad, hooks)
        if (item(given, 0, Kind::tensor) == nullptr) return error("_rebuild_parameter without a tensor");
        return push(given.items[0]);
      case Callable::rebuild_tensor: return rebuild_tensor(given);
      case Callable::storage_type: break;
    }
    return error("a storage type is called");
  }

  /// (storage, offset, size, stride, requires_grad, hooks, metadata)
  Status rebuild_tensor(const Value& given) {
    const Value* const offset = item(given, 1, Kind::integer);
    if (given.items.size() < 4 || item(given, 0, Kind::storage) == nullptr || offset == nullptr ||
        item(given, 2, Kind::tuple) == nullptr || item(given, 3, Kind::tuple) == nullptr) {
      return error("_rebuild_tensor_v2 without storage, offset, size and stride");
    }
    return push_new({.kind = Kind::tensor,
                     .integer = offset->integer,
                     .items = {given.items[0], given.items[2], given.items[3]}});
  }

  /// ("storage", type, key, location, elements)
  Status persistent_id() {
    CARAT_ASSIGN(const std::uint32_t id, pop());
    const Value& given = value(id);
    const Value* const tag = item(given, 0, Kind::text);
    const Value* const type = item(given, 1, Kind::callable);
    const Value* const key = item(given, 2, Kind::text);
    const Value* const elements = item(given, 4, Kind::integer);
    if (tag == nullptr || tag->text != "storage" || type == nullptr || type->callable != Callable::storage_type ||
        key == nullptr || elements == nullptr || elements->integer < 0) {
      return error("a persistent id that is not a storage's");
    }
    return push_new({.kind = Kind::storage,
                     .storage_type = type->storage_type,
                     .integer = elements->integer,
                     .text = key->text});
  }

  /// Attributes of a dictionary (torch's _metadata) mean nothing here; nothing else may have any.
  Status build() {
    CARAT_TRY(pop().status());
    CARAT_ASSIGN(const std::uint32_t target, top());
    if (value(target).kind == Kind::dictionary) return ok_status();
    return error(fmt::format("attributes are set on {}", name(value(target).kind)));
  }

  Status push_long(std::uint8_t count) {
    CARAT_ASSIGN(const auto raw, take(count));
    if (raw.size() > sizeof(std::int64_t)) return error("an integer of more than 64 bits");
    const bool negative = !raw.empty() && (raw.back() & std::byte{0x80}) != std::byte{0};
    std::int64_t integer = negative ? -1 : 0;
    if (!raw.empty()) std::memcpy(&integer, raw.data(), raw.size());
    return push_integer(integer);
  }

  Status push_tuple(Result<std::vector<std::uint32_t>> items, Kind kind = Kind::tuple) {
    if (!items.ok()) return std::move(items).status();
    return push_new({.kind = kind, .items = std::move(items).value()});
  }

  template <typename T>
  Status with_number(Status (Machine::*use)(T)) {
    CARAT_ASSIGN(const T argument, number<T>());
    return (this->*use)(argument);
  }
  template <typename T>
  Status text_of() {
    CARAT_ASSIGN(const T length, number<T>());
    return push_text(length);
  }
  template <typename T>
  Status integer_of() {
    CARAT_ASSIGN(const T integer, number<T>());
    return push_integer(integer);
  }
  template <typename T>
  Status memo_of(Status (Machine::*use)(std::uint32_t)) {
    CARAT_ASSIGN(const T slot, number<T>());
    return (this->*use)(slot);
  }

  Status step(Op op) {
    switch (op) {
      case Op::protocol: return protocol();
      case Op::frame: return number<std::uint64_t>().status();
      case Op::mark: return push(kMark);
      case Op::pop: return stack_.empty() ? error("the stack is empty") : (stack_.pop_back(), ok_status());
      case Op::pop_mark: return pop_to_mark().status();
      case Op::duplicate: {
        CARAT_ASSIGN(const std::uint32_t again, top());
        return push(again);
      }
      case Op::none: return push_new({});
      case Op::true_value: return push_integer(1, Kind::boolean);
      case Op::false_value: return push_integer(0, Kind::boolean);
      case Op::int1: return integer_of<std::uint8_t>();
      case Op::int2: return integer_of<std::uint16_t>();
      case Op::int4: return integer_of<std::int32_t>();
      case Op::long1: return with_number<std::uint8_t>(&Machine::push_long);
      case Op::real: {  // eight bytes, of no use here
        CARAT_TRY(take(8).status());
        return push_new({.kind = Kind::real});
      }
      case Op::unicode:
      case Op::string: return text_of<std::uint32_t>();
      case Op::short_unicode:
      case Op::short_string: return text_of<std::uint8_t>();
      case Op::unicode8: return text_of<std::uint64_t>();
      case Op::empty_tuple: return push_new({.kind = Kind::tuple});
      case Op::empty_list: return push_new({.kind = Kind::list});
      case Op::empty_dict: return push_new({.kind = Kind::dictionary});
      case Op::tuple: return push_tuple(pop_to_mark());
      case Op::tuple1: return push_tuple(pop_some(1));
      case Op::tuple2: return push_tuple(pop_some(2));
      case Op::tuple3: return push_tuple(pop_some(3));
      case Op::append: return extend(pop_some(1), Kind::list);
      case Op::appends: return extend(pop_to_mark(), Kind::list);
      case Op::set_item: return extend(pop_some(2), Kind::dictionary);
      case Op::set_items: return extend(pop_to_mark(), Kind::dictionary);
      case Op::put: return memo_of<std::uint8_t>(&Machine::put);
      case Op::long_put: return memo_of<std::uint32_t>(&Machine::put);
      case Op::memoize: return put(static_cast<std::uint32_t>(memo_.size()));
      case Op::get: return memo_of<std::uint8_t>(&Machine::get);
      case Op::long_get: return memo_of<std::uint32_t>(&Machine::get);
      case Op::global:
      case Op::instance: {
        CARAT_ASSIGN(const std::string_view module, line());
        CARAT_ASSIGN(const std::string_view function, line());
        CARAT_TRY(push_callable(module, function));
        return op == Op::global ? ok_status() : error("an opcode of protocol 0");
      }
      case Op::stack_global: return stack_global();
      case Op::reduce: return reduce();
      case Op::build: return build();
      case Op::persistent_id: return persistent_id();
      case Op::stop: break;
    }
    return error(fmt::format("opcode {:#04x} is not allowed: torch.save does not write it",
                             static_cast<unsigned>(op)));
  }

  Status extend(Result<std::vector<std::uint32_t>> items, Kind kind) {
    if (!items.ok()) return std::move(items).status();
    return extend_top(*items, kind);
  }

  Status protocol() {
    CARAT_ASSIGN(const auto version, number<std::uint8_t>());
    if (version >= 2 && version <= 5) return ok_status();
    return unsupported(fmt::format("byte {}: pickle protocol {} is not supported; 2 to 5 are", op_at_, version));
  }

  std::span<const std::byte> bytes_;
  EntryMemory& memory_;
  std::size_t at_ = 0;
  std::size_t op_at_ = 0;
  Pickle pickle_;
  std::vector<std::uint32_t> stack_;
  std::unordered_map<std::uint32_t, std::uint32_t> memo_;
};

}  // namespace

std::string_view name(Kind kind) {
  constexpr std::array<std::string_view, 11> kNames{"None",    "a boolean", "an integer",  "a real number",
                                                    "a string", "a tuple",  "a list",      "a dictionary",
                                                    "a callable", "a storage", "a tensor"};
  return kNames[static_cast<std::size_t>(kind)];
}

Result<Pickle> read_pickle(std::span<const std::byte> bytes, EntryMemory& memory) {
  return Machine(bytes, memory).run();
}

}  // namespace carat::torch_bin
