# One static library a folder of src/, and one test program a folder of tests/.

add_library(carat_options INTERFACE)
target_compile_options(carat_options INTERFACE -Wall -Wextra -Wconversion -Werror -fvisibility=hidden)
target_include_directories(carat_options INTERFACE ${CMAKE_SOURCE_DIR}/src)
# Designated initializers leave the other members at their defaults on purpose.
target_compile_options(carat_options INTERFACE -Wno-missing-field-initializers)
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  target_compile_options(carat_options INTERFACE -Wno-sign-conversion)
else()
  # g++ 12 sees uninitialized reads in std::optional, and overlaps in std::string (bug 105651), where there are none.
  target_compile_options(carat_options INTERFACE -Wno-maybe-uninitialized -Wno-restrict)
endif()
if(CARAT_SANITIZE)
  target_compile_options(carat_options INTERFACE -fsanitize=${CARAT_SANITIZE} -fno-omit-frame-pointer
                                                 -fno-sanitize-recover=all)
  target_link_options(carat_options INTERFACE -fsanitize=${CARAT_SANITIZE})
endif()

# carat_library(name [folders…] DEPENDS [libraries…]): all .cpp files of src/<folder> (default: src/<name>).
function(carat_library name)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "" "" "FOLDERS;DEPENDS")
  if(NOT ARG_FOLDERS)
    set(ARG_FOLDERS ${name})
  endif()
  set(sources)
  foreach(folder ${ARG_FOLDERS})
    file(GLOB found CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${folder}/*.cpp)
    list(APPEND sources ${found})
  endforeach()
  if(NOT sources)
    return()
  endif()
  add_library(carat_${name} STATIC ${sources})
  target_link_libraries(carat_${name} PUBLIC carat_options ${ARG_DEPENDS})
endfunction()

# carat_test(folder DEPENDS libraries…): tests/<folder>/*_test.cpp as one program, each case a ctest test.
function(carat_test folder)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "" "" "DEPENDS")
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/${folder}/*.cpp)
  if(NOT sources)
    return()
  endif()
  string(REPLACE "/" "_" target ${folder}_test)
  add_executable(${target} ${sources})
  target_include_directories(${target} PRIVATE ${CMAKE_SOURCE_DIR}/tests)
  target_link_libraries(${target} PRIVATE ${ARG_DEPENDS} GTest::gtest GTest::gtest_main)
  target_compile_definitions(${target} PRIVATE CARAT_FIXTURES="${CMAKE_SOURCE_DIR}/tests/fixtures"
                                               CARAT_SOURCE_DIR="${CMAKE_SOURCE_DIR}"
                                               CARAT_BINARY="$<TARGET_FILE_DIR:${target}>/carat")
  # Not every test program is compiled with the sanitizer that the program it starts has: they are told.
  if(CARAT_SANITIZE)
    target_compile_definitions(${target} PRIVATE CARAT_SANITIZED)
  endif()
  add_test(NAME ${target} COMMAND ${target})
endfunction()
