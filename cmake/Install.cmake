# libcarat as users have it, and everything that `make install` lays out. Not with sanitizers: those builds are tested,
# not installed.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# All static libraries of ours that `target` links, directly or not, in `libraries`; what else they link in `others`.
function(carat_link_closure target libraries others)
  set(found)
  set(outside)
  set(waiting ${target})
  while(waiting)
    list(POP_FRONT waiting one)
    if(NOT TARGET ${one})
      list(APPEND outside ${one})
      continue()
    endif()
    get_target_property(imported ${one} IMPORTED)
    get_target_property(type ${one} TYPE)
    if(imported OR type STREQUAL "INTERFACE_LIBRARY")
      list(APPEND outside ${one})
      continue()
    endif()
    if(one IN_LIST found)
      continue()
    endif()
    list(APPEND found ${one})
    get_target_property(links ${one} INTERFACE_LINK_LIBRARIES)
    if(links)
      list(APPEND waiting ${links})
    endif()
  endwhile()
  list(REMOVE_DUPLICATES outside)
  list(REMOVE_ITEM found ${target})
  set(${libraries} ${found} PARENT_SCOPE)
  set(${others} ${outside} PARENT_SCOPE)
endfunction()

# The shared library shows the C functions and nothing else.
set(carat_version_script ${CMAKE_SOURCE_DIR}/cmake/libcarat.map)
add_library(carat_shared SHARED $<TARGET_OBJECTS:carat_api>)
target_link_libraries(carat_shared PRIVATE carat_engine)
target_link_options(carat_shared PRIVATE -Wl,--version-script=${carat_version_script} -Wl,--no-undefined)
target_include_directories(carat_shared INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
set_target_properties(carat_shared PROPERTIES OUTPUT_NAME carat EXPORT_NAME carat VERSION ${PROJECT_VERSION} SOVERSION 0
                                              LINK_DEPENDS ${carat_version_script}
                                              LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})

# The static one is a single object in which every name but those of the C functions is local, with what is linked
# statically anyway (libcrypto, utf8proc) inside: it cannot clash with a program's own copies.
carat_link_closure(carat_engine carat_parts carat_others)
set(part_files $<TARGET_FILE:carat_engine>)
foreach(part ${carat_parts})
  list(APPEND part_files $<TARGET_FILE:${part}>)
endforeach()
set(archives ${carat_others})
list(FILTER archives INCLUDE REGEX "\\.a$")
set(static_library ${CMAKE_BINARY_DIR}/libcarat.a)
set(whole_object ${CMAKE_BINARY_DIR}/libcarat.o)
add_custom_command(
  OUTPUT ${static_library}
  COMMAND ${CMAKE_CXX_COMPILER} -r -nostdlib -Wl,--force-group-allocation -o ${whole_object}
          $<TARGET_OBJECTS:carat_api> -Wl,--start-group ${part_files} ${archives} -Wl,--end-group
  COMMAND ${CMAKE_OBJCOPY} --wildcard --keep-global-symbol=carat_* --strip-debug ${whole_object}
  COMMAND ${CMAKE_COMMAND} -E rm -f ${static_library}
  COMMAND ${CMAKE_AR} qcs ${static_library} ${whole_object}
  DEPENDS carat_api $<TARGET_OBJECTS:carat_api> carat_engine ${carat_parts}
  COMMAND_EXPAND_LISTS VERBATIM COMMENT "Linking libcarat.a")

# Man page and completions come from the program's own options.
set(reference_files)
foreach(kind man bash zsh fish)
  set(file ${CMAKE_BINARY_DIR}/reference/carat.${kind})
  add_custom_command(OUTPUT ${file} COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_BINARY_DIR}/reference
                     COMMAND carat __reference ${kind} > ${file} DEPENDS carat VERBATIM)
  list(APPEND reference_files ${file})
endforeach()
add_custom_target(carat_install_files ALL DEPENDS ${static_library} ${reference_files})

set(config_folder ${CMAKE_INSTALL_LIBDIR}/cmake/carat)
configure_package_config_file(${CMAKE_SOURCE_DIR}/cmake/caratConfig.cmake.in ${CMAKE_BINARY_DIR}/caratConfig.cmake
                              INSTALL_DESTINATION ${config_folder} PATH_VARS CMAKE_INSTALL_LIBDIR
                              CMAKE_INSTALL_INCLUDEDIR)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/caratConfigVersion.cmake COMPATIBILITY SameMinorVersion)
# From where carat.pc lies to the prefix, so that an installed tree can be moved.
file(RELATIVE_PATH pc_to_prefix /p/${CMAKE_INSTALL_LIBDIR}/pkgconfig /p)
configure_file(${CMAKE_SOURCE_DIR}/cmake/carat.pc.in ${CMAKE_BINARY_DIR}/carat.pc @ONLY)

install(TARGETS carat RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(TARGETS carat_shared EXPORT caratTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES ${static_library} DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES ${CMAKE_SOURCE_DIR}/include/carat/carat.h ${CMAKE_SOURCE_DIR}/include/carat/carat.hpp
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/carat)
install(EXPORT caratTargets NAMESPACE carat:: DESTINATION ${config_folder})
install(FILES ${CMAKE_BINARY_DIR}/caratConfig.cmake ${CMAKE_BINARY_DIR}/caratConfigVersion.cmake
        DESTINATION ${config_folder})
install(FILES ${CMAKE_BINARY_DIR}/carat.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(FILES ${CMAKE_BINARY_DIR}/reference/carat.man DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 RENAME carat.1)
install(FILES ${CMAKE_BINARY_DIR}/reference/carat.bash
        DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME carat)
install(FILES ${CMAKE_BINARY_DIR}/reference/carat.zsh DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions
        RENAME _carat)
install(FILES ${CMAKE_BINARY_DIR}/reference/carat.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
install(FILES ${CMAKE_SOURCE_DIR}/LICENSE ${CMAKE_SOURCE_DIR}/NOTICE DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(FILES ${CMAKE_SOURCE_DIR}/examples/generate.c ${CMAKE_SOURCE_DIR}/examples/chat.cpp
        ${CMAKE_SOURCE_DIR}/examples/CMakeLists.txt DESTINATION ${CMAKE_INSTALL_DOCDIR}/examples)
