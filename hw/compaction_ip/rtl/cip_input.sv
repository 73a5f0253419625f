// One input: a queue of words from memory, their decoder, and a queue of values.
module cip_input (
    input  logic                 clk_i,
    input  logic                 rst_i,
    // words from memory
    input  logic                 write_i,
    input  cip_pkg::word_t       word_i,
    output logic                 word_taken_o,
    // the oldest record, of whose key the word at `key_index_i`
    output logic                 head_valid_o,
    output cip_pkg::head_t       head_o,
    input  cip_pkg::key_index_t  key_index_i,
    input  logic                 head_pop_i,
    // values, in the order of records
    output logic                 value_valid_o,
    output cip_pkg::word_t       value_o,
    input  logic                 value_pop_i,
    // status
    output logic                 record_found_o,
    output logic                 moving_o,
    output logic                 error_valid_o,
    output cip_pkg::error_code_e error_code_o
);
  logic word_valid, words_full, value_write, values_full;
  cip_pkg::word_t word, value;

  cip_word_fifo u_words (
      .clk_i, .rst_i, .write_i, .write_data_i(word_i), .full_o(words_full),
      .valid_o(word_valid), .data_o(word), .pop_i(word_taken_o)
  );
  cip_decoder u_decoder (
      .clk_i, .rst_i, .word_valid_i(word_valid), .word_i(word), .word_pop_o(word_taken_o),
      .head_valid_o, .head_o, .key_index_i, .head_pop_i,
      .value_full_i(values_full), .value_write_o(value_write), .value_o(value),
      .record_found_o, .moving_o, .error_valid_o, .error_code_o
  );
  cip_word_fifo u_values (
      .clk_i, .rst_i, .write_i(value_write), .write_data_i(value), .full_o(values_full),
      .valid_o(value_valid_o), .data_o(value_o), .pop_i(value_pop_i)
  );

`ifndef SYNTHESIS
  // The issuer asks only for what fits.
  always_ff @(posedge clk_i) if (!rst_i) begin
    assert (!(words_full && write_i)) else $error("cip_input: more words than were asked for");
  end
  cip_handshake u_head_kept (
      .clk_i, .rst_i, .valid_i(head_valid_o), .ready_i(head_pop_i), .payload_i(1'b0)
  );
`endif
endmodule
