// A queue of 2**DepthBits words in block RAM, its oldest word always visible.
//
// The block RAM's own output register holds the oldest word, so a word written is visible two cycles later and one
// word per cycle flows through. Nothing is written while `full_o`, nothing taken while not `valid_o`.
module cip_word_fifo #(
    parameter int unsigned DepthBits = cip_pkg::QueueDepthBits
) (
    input  logic           clk_i,
    input  logic           rst_i,
    input  logic           write_i,
    input  cip_pkg::word_t write_data_i,
    output logic           full_o,
    output logic           valid_o,
    output cip_pkg::word_t data_o,
    input  logic           pop_i
);
  logic [cip_pkg::WordWidth-1:0] memory[2**DepthBits];
  cip_pkg::word_t data_q;
  // One bit more than an address: full and empty differ in it.
  logic [DepthBits:0] head_q, tail_q;
  logic valid_q;
  logic fetch;

  assign full_o  = head_q[DepthBits] != tail_q[DepthBits] && head_q[DepthBits-1:0] == tail_q[DepthBits-1:0];
  assign valid_o = valid_q;
  assign data_o  = data_q;
  assign fetch   = (!valid_q || pop_i) && head_q != tail_q;

  always_ff @(posedge clk_i) begin
    if (write_i) memory[tail_q[DepthBits-1:0]] <= write_data_i;
    if (fetch) data_q <= memory[head_q[DepthBits-1:0]];
  end

  always_ff @(posedge clk_i) begin
    if (rst_i) begin
      head_q  <= '0;
      tail_q  <= '0;
      valid_q <= 1'b0;
    end else begin
      if (write_i) tail_q <= tail_q + 1'b1;
      if (fetch) head_q <= head_q + 1'b1;
      valid_q <= fetch || (valid_q && !pop_i);
    end
  end

`ifndef SYNTHESIS
  always_ff @(posedge clk_i) if (!rst_i) begin
    assert (!(write_i && full_o)) else $error("cip_word_fifo: written while full");
    assert (!(pop_i && !valid_o)) else $error("cip_word_fifo: read while empty");
  end
`endif
endmodule
