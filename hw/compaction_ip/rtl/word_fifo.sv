// A queue of 2**DEPTH_BITS words in block RAM, its oldest word always visible.
//
// The block RAM's own output register holds the oldest word, so a word written is visible two cycles later and one
// word per cycle flows through. The writer must not write while `full`.
module word_fifo #(
    parameter int DEPTH_BITS = 9
) (
    input  logic        clk,
    input  logic        reset,
    input  logic        write,
    input  logic [63:0] write_data,
    output logic        full,
    output logic        valid,
    output logic [63:0] data,
    input  logic        pop
);
  logic [63:0] memory[2**DEPTH_BITS];
  logic [DEPTH_BITS:0] head, tail;
  logic fetch;

  assign full  = (head[DEPTH_BITS] != tail[DEPTH_BITS]) && (head[DEPTH_BITS-1:0] == tail[DEPTH_BITS-1:0]);
  assign fetch = (!valid || pop) && head != tail;

  always_ff @(posedge clk) begin
    if (write) memory[tail[DEPTH_BITS-1:0]] <= write_data;
    if (fetch) data <= memory[head[DEPTH_BITS-1:0]];
  end

  always_ff @(posedge clk) begin
    if (reset) begin
      head  <= '0;
      tail  <= '0;
      valid <= 1'b0;
    end else begin
      if (write) tail <= tail + 1'b1;
      if (fetch) head <= head + 1'b1;
      valid <= fetch || (valid && !pop);
    end
  end

`ifndef SYNTHESIS
  always_ff @(posedge clk) if (!reset) begin
    assert (!(write && full)) else $error("word_fifo: written while full");
    assert (!(pop && !valid)) else $error("word_fifo: read while empty");
  end
`endif
endmodule
