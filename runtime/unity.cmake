# ejk_unity(target): with EJK_UNITY the target's sources of one folder are compiled as one, so that what they all include is read once.
# By folder, not by number: a new file changes its own folder's unit alone, and names at the top of a file need to differ within a folder.
option(EJK_UNITY "Compile the sources of a folder as one: a whole build is far cheaper, one edit compiles its folder" ON)
set(EJK_APART "" CACHE STRING "A regular expression over sources, such as '^reference/kernels/mean': they are compiled alone, while one works on them")

function(ejk_unity target)
  if(NOT EJK_UNITY)
    return()
  endif()
  get_target_property(sources ${target} SOURCES)
  foreach(source ${sources})
    cmake_path(RELATIVE_PATH source BASE_DIRECTORY ${CMAKE_SOURCE_DIR} OUTPUT_VARIABLE place)
    if(EJK_APART AND place MATCHES "${EJK_APART}")
      continue()  # in no group: alone
    endif()
    cmake_path(GET place PARENT_PATH folder)
    string(REPLACE "/" "_" group ${folder})
    set_property(SOURCE ${source} PROPERTY UNITY_GROUP ${group})
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
endfunction()

# Headers that nearly every source includes, read once for all targets. tools/quickstart builds with it; otherwise it is off, since ccache would
# find nothing again.
option(EJK_PRECOMPILED "Precompile the headers that nearly every source includes: a build from nothing is faster" OFF)

# Compiled as ejk_spec is, with -O2: GCC 12 crashes where a unit is optimised more than the precompiled header was, not where it is less.
function(ejk_precompiled target)
  if(NOT EJK_PRECOMPILED)
    return()
  endif()
  if(NOT TARGET ejk_precompiled_headers)
    file(WRITE ${CMAKE_BINARY_DIR}/precompiled.cpp "// A target needs a source; this one has the precompiled headers.\n")
    add_library(ejk_precompiled_headers OBJECT ${CMAKE_BINARY_DIR}/precompiled.cpp)
    target_include_directories(ejk_precompiled_headers PRIVATE $<TARGET_PROPERTY:ejk_spec,INCLUDE_DIRECTORIES>)
    target_compile_definitions(ejk_precompiled_headers PRIVATE $<TARGET_PROPERTY:ejk_spec,COMPILE_DEFINITIONS>)
    target_precompile_headers(ejk_precompiled_headers PRIVATE ${CMAKE_SOURCE_DIR}/runtime/precompiled.hpp)
  endif()
  target_precompile_headers(${target} REUSE_FROM ejk_precompiled_headers)
  target_compile_options(${target} PRIVATE -fPIC)  # as the headers; programs have -fPIE
endfunction()

# ejk_light(target folders...): the target's sources in these folders, which run seldom and wait for others, are optimised by -O1 in a release:
# a quarter less to compile. They become the objects <target>_light, which the target's archive holds. After ejk_unity.
function(ejk_light target)
  get_target_property(sources ${target} SOURCES)
  string(REPLACE ";" "|" folders "${ARGN}")
  set(light ${sources})
  list(FILTER light INCLUDE REGEX "/(${folders})/")
  list(REMOVE_ITEM sources ${light})
  add_library(${target}_light OBJECT ${light})
  target_include_directories(${target}_light PRIVATE $<TARGET_PROPERTY:${target},INCLUDE_DIRECTORIES>)
  target_compile_definitions(${target}_light PRIVATE $<TARGET_PROPERTY:${target},COMPILE_DEFINITIONS>)
  target_compile_options(${target}_light PRIVATE $<$<CONFIG:Release>:-O1>)
  set_target_properties(${target} PROPERTIES SOURCES "${sources}")
  target_sources(${target} PRIVATE $<TARGET_OBJECTS:${target}_light>)
  set_target_properties(${target}_light PROPERTIES UNITY_BUILD ${EJK_UNITY} UNITY_BUILD_MODE GROUP)
  ejk_precompiled(${target}_light)
endfunction()
